package jobs_test

import (
	"testing"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for _, mode := range []jobs.Mode{jobs.Polling, jobs.KafkaOutbox} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			jobstest.Suite(t, jobstest.NewRig(t, mode, nil))
		})
	}
}
