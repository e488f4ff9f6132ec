package purge

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/postgres"
)

// patience is how long tests wait for what has to happen.
const patience = time.Minute

// flows is a workflow engine that runs beside.
func (b *testBundle) flows() (*engine.Engine, *jobs.Store) {
	b.t.Helper()
	signals := postgres.NewSignals(b.pool, nil)
	queue, err := jobs.NewStore(jobs.Config{Pool: b.pool, Signals: signals})
	require.NoError(b.t, err)
	defined := definitions.New(definitions.Config{Pool: b.pool, Signals: signals})
	_, _, err = defined.Put(b.t.Context(), []byte(`{"id":"one","name":"x","steps":[
		{"id":"work","name":"x","type":"SERVICE_TASK","nextStep":"end"},{"id":"end","name":"x","type":"END"}]}`), definitions.Workflow, "ann")
	require.NoError(b.t, err)
	e := engine.New(engine.Config{Pool: b.pool, Plans: defined, Jobs: queue, Signals: signals})
	for _, run := range []func(context.Context) error{e.Run, func(ctx context.Context) error { return e.RunTimers(ctx, b.leases) }} {
		ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		b.t.Cleanup(func() {
			cancel()
			assert.NoError(b.t, <-done)
		})
	}
	return e, queue
}

func TestAPurgeErasesTheWorkflowsOfAUser(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	e, queue := b.flows()
	start := func(user, tenant string) uuid.UUID {
		i, err := e.Start(t.Context(), engine.StartRequest{DefinitionID: "one", User: user, Tenant: tenant, Variables: json.RawMessage(`{"x":1}`)})
		require.NoError(t, err)
		return i.ID
	}
	mine, open, other, theirs := start("ada", "acme"), start("ada", "acme"), start("ada", "other"), start("bob", "acme")
	list, err := queue.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"work"}, Max: 10})
	require.NoError(t, err)
	for _, j := range list {
		if j.InstanceID != open {
			require.NoError(t, e.CompleteJob(t.Context(), jobs.Completion{Holder: jobs.Holder{JobID: j.ID, WorkerID: "w"}}))
		}
	}
	b.exec(`UPDATE outbox_events SET status = 'PUBLISHED', published_at = now()`)
	view := func() {
		b.exec(`INSERT INTO saga_views (id) VALUES ($1::text)`, mine.String())
		b.exec(`INSERT INTO event_log ("offset", time, appended_at, partition, topic_no, subject, headers) VALUES (1, now(), now(), 9, 1, $1::text, '\x')`, mine.String())
	}
	view()
	b.letter(mine.String(), false)

	r := Request{User: "ada", Tenant: "acme"}
	erased, waiting, err := b.store.Preview(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 1, 1}, []int64{erased[Workflows], erased[Events], erased[DeadLetters]})
	assert.EqualValues(t, 1, waiting[WorkflowsNotEnded])
	created := b.create(r)
	// What comes of it since belongs to it, and what else the user begins does not.
	came, cameOfThat, fresh := start("ada", "acme"), start("ada", "acme"), start("ada", "acme")
	list, err = queue.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"work"}, Max: 10})
	require.NoError(t, err)
	for _, j := range list {
		require.NoError(t, e.CompleteJob(t.Context(), jobs.Completion{Holder: jobs.Holder{JobID: j.ID, WorkerID: "w"}}))
	}
	b.exec(`UPDATE outbox_events SET status = 'PUBLISHED', published_at = now()`)
	b.exec(`UPDATE wf_instances SET previous_instance_id = $2 WHERE id = $1`, came, open)
	b.exec(`UPDATE wf_instances SET parent_instance_id = $2 WHERE id = $1`, cameOfThat, came)
	p := b.work(b.store, created.ID)
	assert.Equal(t, Waiting, p.State)
	assert.Equal(t, Counts{WorkflowsNotEnded: 1}, p.Waiting)
	left := func(id uuid.UUID) int {
		return b.count(`(SELECT FROM wf_instances WHERE id = '` + id.String() + `' UNION ALL SELECT FROM wf_journal WHERE instance_id = '` + id.String() +
			`' UNION ALL SELECT FROM jobs WHERE instance_id = '` + id.String() + `' UNION ALL SELECT FROM saga_views WHERE id = '` + id.String() + `') AS x`)
	}
	assert.Zero(t, left(mine)+len(b.left(mine.String())))
	assert.Zero(t, left(came)+left(cameOfThat))
	for _, id := range []uuid.UUID{open, other, theirs, fresh} {
		assert.Positive(t, left(id))
	}

	// What comes in again goes again.
	view()
	b.exec(`UPDATE purges SET next_at = clock_timestamp()`)
	b.work(b.store, p.ID)
	assert.Zero(t, left(mine)+len(b.left(mine.String())))

	// With --cancel what has not ended ends.
	_, _, err = b.store.Create(t.Context(), Request{User: "ada", Tenant: "acme", Cancel: true, Actor: "ann"})
	require.NoError(t, err)
	b.work(b.store, p.ID)
	require.Eventually(t, func() bool {
		i, err := e.Get(t.Context(), open)
		return err == nil && i.Status == "CANCELLED"
	}, patience, 10*time.Millisecond)
	b.exec(`UPDATE outbox_events SET status = 'PUBLISHED', published_at = now()`)
	b.exec(`UPDATE purges SET next_at = clock_timestamp() WHERE state = 'WAITING'`)
	p = b.work(b.store, p.ID)
	assert.Equal(t, Done, p.State)
	assert.EqualValues(t, 4, p.Erased[Workflows])
	assert.Zero(t, left(open))
	assert.Positive(t, left(theirs)+left(other))
}
