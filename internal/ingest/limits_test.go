package ingest_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"context"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
)

func (b *bench) end(n string) {
	b.t.Helper()
	tag, err := b.pool.Exec(b.t.Context(), `UPDATE executions SET state = 'COMPLETED', finished_at = now() WHERE request->'spec'->'args'->>'n' = $1`, n)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, tag.RowsAffected())
}

func TestALimitStallsAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction, `"limits": {"open": 3}, "limit_action": "stall"`)
	b.stopped(target, 3, "limit_reached", records(0, 5)...)
	assert.Equal(t, []string{"0", "1", "2"}, b.made())
	assert.Len(t, b.keys(), 3)
	b.stopped(target, 0, "limit_reached", records(3, 5)...)

	// A repetition takes no room.
	assert.Equal(t, ingest.Duplicate, b.create(target, records(0, 1)...)[0].Status)
	b.stopped(target, 2, "limit_reached", append(records(1, 3), records(3, 5)...)...)

	b.end("1")
	b.stopped(target, 1, "limit_reached", records(3, 5)...)
	assert.Equal(t, []string{"0", "1", "2", "3"}, b.made())
	b.end("0")
	b.create(target, records(4, 5)...)

	require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error { return ingest.Forget(ctx, tx, b.uid) }))
	b.create(target, records(5, 8)...)
}

func TestALimitRejects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction, `"limits": {"open": 2}, "limit_action": "reject", "on_poison": "stall"`)
	outcomes := b.create(target, records(0, 4)...)
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Created, ingest.Refused, ingest.Refused}, statuses(outcomes))
	assert.ErrorContains(t, outcomes[2].Err, "limits.open")
	assert.Equal(t, 2, b.count(`SELECT count(*) FROM dead_letters WHERE reason LIKE 'limit_reached: %'`))

	hook := b.compile(`"webhook": {"auth": {"none": true}}`, toFunction, `"limits": {"open": 2}, "limit_action": "reject"`)
	outcome := b.create(hook, ingest.Message{Body: []byte(`{"n": 9}`), Identity: "a"})[0]
	assert.Equal(t, ingest.Refused, outcome.Status)
	b.end("0")
	assert.Equal(t, ingest.Created, b.create(hook, ingest.Message{Body: []byte(`{"n": 9}`), Identity: "a"})[0].Status, "what was rejected is not known")
}

func TestWhatIsQueuedHasNoLimitHere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.kafka(toFunction, `"limits": {"open": 2}`), records(0, 5)...)
	assert.Len(t, b.made(), 5)
	assert.Zero(t, b.count(`SELECT count(*) FROM trigger_targets`))
}

func TestALimitHoldsOverAllMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	members := []*bench{b, process(t, b.dsn, b.uid), process(t, b.dsn, b.uid)}
	var wait sync.WaitGroup
	for p, member := range members {
		target := member.kafka(toFunction, `"limits": {"open": 10}, "limit_action": "stall"`)
		wait.Go(func() {
			for n := range int64(10) {
				offset := int64(p)*100 + n
				_, err := member.Create(t.Context(), target, records(offset, offset+1))
				if err != nil {
					assert.ErrorContains(t, err, "limits.open")
				}
			}
		})
	}
	wait.Wait()
	assert.Equal(t, 10, b.count(`SELECT count(*) FROM executions`))
}
