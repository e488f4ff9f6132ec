package jobs_test

import (
	"testing"

	"github.com/millrace/millrace/internal/jobs/jobstest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	t.Run("shell", func(t *testing.T) {
		t.Parallel()
		jobstest.SuiteInBothModes(t, nil)
	})
	t.Run("engine", func(t *testing.T) {
		t.Parallel()
		jobstest.SuiteInBothModes(t, func(t *testing.T, r *jobstest.Rig) jobstest.Actions {
			return jobstest.NewEngineActions(t, r)
		})
	})
}
