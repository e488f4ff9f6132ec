package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/internal/crowd"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/testenv"
)

// A crowd of users asks for executions with limits of all sorts while two coordinators
// are killed and frozen in turn: nothing is admitted twice, no limit is exceeded at any
// instant, nobody is forgotten. `make crowd` is the full size of it.
func TestCrowd(t *testing.T) {
	t.Parallel()
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "crowd.log"))
	require.NoError(t, err)
	defer log.Close()
	report, err := crowd.Run(t.Context(), crowd.Options{
		Dir: workspace(t), Millrace: binary(t, ""), DSN: testenv.Database(t, nil), Log: log,
		Executions: 1000, Users: 50, Coordinators: 2, Seed: 1, Hurts: 2,
	})
	require.NoError(t, err)
	t.Log(report.Line())
	assert.Empty(t, report.Found, history.Summary(report.Found, 5))
	// What was meant to happen did.
	assert.Positive(t, report.Kills)
	assert.Positive(t, report.Freezes)
	assert.GreaterOrEqual(t, report.Admitters, 2, "one took over from another")
	assert.GreaterOrEqual(t, report.Admissions, 900)
	assert.Positive(t, report.Snapshots)
	assert.Positive(t, report.Ends[client.Rejected], "the limit at the door sends some away")
}
