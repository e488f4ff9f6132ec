package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/schedule"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

// runner notes what it is handed, and fails as often as it is told.
type runner struct {
	batches [][]topics.ScheduleTask
	fail    []error
}

func (r *runner) Push(_ context.Context, tasks []topics.ScheduleTask) error {
	r.batches = append(r.batches, tasks)
	if len(r.fail) == 0 {
		return nil
	}
	err := r.fail[0]
	r.fail = r.fail[1:]
	return err
}

func task(minute int) topics.Event {
	at := time.Date(2026, 3, 2, 10, minute, 0, 0, time.UTC)
	return topics.ScheduleTask{
		ScheduleTime: topics.ScheduleTime{Schedule: topics.Schedule{TriggerUID: "u", TriggerID: "nightly"}, ScheduledAt: at}, DueAt: at, FiredAt: at,
	}
}

func TestTasksAreHandedOnTogether(t *testing.T) {
	t.Parallel()
	r := &runner{}
	c := schedule.NewConsumer(r)
	require.NoError(t, c.Validate())
	h := pipelinetest.New(t, c)
	h.Feed(task(1), task(2), task(3))
	require.Len(t, r.batches, 1)
	assert.Len(t, r.batches[0], 3)
	assert.Equal(t, "nightly", r.batches[0][2].TriggerID)
}

// Nothing is given up on: what cannot be read is a dead letter, what cannot be done waits.
func TestFaultsAreWaitedFor(t *testing.T) {
	t.Parallel()
	r := &runner{fail: []error{&pgconn.PgError{Code: "57P01"}}}
	h := pipelinetest.New(t, schedule.NewConsumer(r), pipelinetest.WithClassifier(middleware.Classifier{Infrastructure: []func(error) bool{postgres.IsInfrastructure}}))
	env, err := topics.NewEnvelope(task(1))
	require.NoError(t, err)
	_, err = h.TryRecord(env.Record("", []byte("u")))
	require.Error(t, err)
	outcomes, err := h.Redeliver()
	require.NoError(t, err)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, outcomes)

	r.fail = []error{errors.New("a bug"), errors.New("a bug"), errors.New("a bug"), errors.New("a bug"), errors.New("a bug")}
	_, err = h.TryRecord(env.Record("", []byte("u")))
	require.Error(t, err, "a task is never given up on")
	assert.Empty(t, h.DeadLetters())
	broken := env.Record("", []byte("u"))
	broken.Value = []byte(`{}`)
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, h.FeedRecord(broken))
}
