package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// entrance is where requests are judged by limits that reject.
type entrance struct {
	*bench
	rules store.Rules
}

func newEntrance(t *testing.T, definitions ...limits.Definition) *entrance {
	t.Helper()
	set, err := limits.Compile(definitions)
	require.NoError(t, err)
	return &entrance{setup(t), store.Rules{Limits: set}}
}

// rejects is a limit whose bucket does not fill while a test runs.
func rejects(name, per string, burst int) limits.Definition {
	return limits.Definition{Name: name, Per: per, Rate: limits.Rate{Tokens: 1, Per: 24 * time.Hour}, Burst: burst, Action: limits.Reject}
}

// from submits n requests of a user, which are not judged yet.
func (e *entrance) from(user string, n int) []string {
	e.t.Helper()
	reqs := make([]topics.Request, n)
	for i := range reqs {
		reqs[i] = request(func(r *topics.Request) { r.User = user })
	}
	return e.submit(reqs...)
}

// judge is what a coordinator does with a delivery.
func (e *entrance) judge(ids ...string) error {
	return postgres.InTx(e.t.Context(), e.pool, func(ctx context.Context, tx pgx.Tx) error {
		return e.Queue(ctx, tx, ids, e.rules)
	})
}

// let judges, and returns which of the executions were let in and which rejected.
func (e *entrance) let(ids ...string) (in, out []string) {
	e.t.Helper()
	require.NoError(e.t, e.judge(ids...))
	return e.sorted(ids)
}

func (e *entrance) sorted(ids []string) (in, out []string) {
	e.t.Helper()
	for _, id := range ids {
		switch state := e.get(id).State; state {
		case execution.Queued:
			in = append(in, id)
		case execution.Rejected:
			out = append(out, id)
		default:
			require.Fail(e.t, "is neither in nor out", "%s is %s", id, state)
		}
	}
	return in, out
}

// tat returns what the bucket of a key keeps, 0 where there is none.
func (e *entrance) tat(limit, key string) int64 {
	e.t.Helper()
	var tat int64
	err := e.pool.QueryRow(e.t.Context(), `SELECT tat_nanos FROM limit_buckets WHERE limit_name = $1 AND key = $2`, limit, key).Scan(&tat)
	if !errors.Is(err, pgx.ErrNoRows) {
		require.NoError(e.t, err)
	}
	return tat
}

// pass lets time go by, as all buckets see it; less than none sets the clock back.
func (e *entrance) pass(d time.Duration) {
	e.t.Helper()
	_, err := e.pool.Exec(e.t.Context(), `UPDATE limit_buckets SET tat_nanos = tat_nanos - $1`, d.Nanoseconds())
	require.NoError(e.t, err)
}

func (e *entrance) now() time.Time {
	e.t.Helper()
	var now time.Time
	require.NoError(e.t, e.pool.QueryRow(e.t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

// Four coordinators at once, each with deliveries of its own, some of them large.
func TestABurstIsExactWhoeverDecides(t *testing.T) {
	t.Parallel()
	e := newEntrance(t, rejects("user", limits.PerUser, 20), rejects("tenant", limits.PerTenant, 50))
	users := []string{"ann", "bob", "cid"}
	var all []string
	for _, user := range users {
		all = append(all, e.from(user, 48)...)
	}
	var coordinators sync.WaitGroup
	for share := range slices.Chunk(interleaved(all), len(all)/4) {
		coordinators.Go(func() {
			for size := 1; len(share) > 0; size = size%7 + 1 {
				n := min(size, len(share))
				assert.NoError(t, e.judge(share[:n]...))
				share = share[n:]
			}
		})
	}
	coordinators.Wait()
	in, out := e.sorted(all)
	assert.Len(t, in, 50, "all tokens of the tenant are spent, and not one more")
	assert.Len(t, out, 94)
	byUser := map[string]int{}
	for _, id := range in {
		byUser[e.get(id).Request.User]++
	}
	for user, n := range byUser {
		assert.LessOrEqual(t, n, 20, user)
	}
}

// interleaved mixes the list in an order that is always the same.
func interleaved(list []string) []string {
	mixed := make([]string, 0, len(list))
	for start := range 5 {
		for i := start; i < len(list); i += 5 {
			mixed = append(mixed, list[i])
		}
	}
	return mixed
}

// With a rate that matters while the test runs: burst + rate x time, by the database's
// clock, and no more.
func TestNoMoreThanTheRateWhileTimePasses(t *testing.T) {
	t.Parallel()
	const burst, perSecond = 5, 100
	e := newEntrance(t, limits.Definition{
		Name: "user", Per: limits.PerUser, Rate: limits.Rate{Tokens: perSecond, Per: time.Second}, Burst: burst, Action: limits.Reject,
	})
	all := e.from("ann", 400)
	begin := e.now()
	var coordinators sync.WaitGroup
	for share := range slices.Chunk(all, len(all)/4) {
		coordinators.Go(func() {
			for delivery := range slices.Chunk(share, 2) {
				assert.NoError(t, e.judge(delivery...))
			}
		})
	}
	coordinators.Wait()
	in, _ := e.sorted(all)
	allowed := burst + perSecond*e.now().Sub(begin).Seconds()
	assert.LessOrEqual(t, float64(len(in)), allowed)
	assert.GreaterOrEqual(t, len(in), burst)
}

func TestARejectionSaysExactlyWhenToComeAgain(t *testing.T) {
	t.Parallel()
	e := newEntrance(t, rejects("user", limits.PerUser, 2))
	in, _ := e.let(e.from("ann", 2)...)
	require.Len(t, in, 2)
	before := e.now()
	_, out := e.let(e.from("ann", 1)...)
	require.Len(t, out, 1)
	after := e.now()

	result := e.get(out[0]).Result
	require.NotNil(t, result)
	assert.Equal(t, topics.RejectedRateLimited, result.Reason)
	assert.Equal(t, `the limit "user" (1/d) lets no more through now`, result.Message)
	// The bucket will be full at tat, and has room for one when all but one interval of
	// that has passed.
	retry := time.Duration(result.RetryAfter)
	decided := time.Unix(0, e.tat("user", "default/ann")).Add(-24 * time.Hour).Add(-retry)
	assert.False(t, decided.Before(before.Add(-time.Microsecond)), "decided at %s, asked at %s", decided, before)
	assert.False(t, decided.After(after.Add(time.Microsecond)), "decided at %s, answered at %s", decided, after)

	var event topics.ExecutionRejected
	var payload []byte
	require.NoError(t, e.pool.QueryRow(t.Context(), `
		SELECT payload FROM outbox_events WHERE aggregate_id = $1 AND event_type = 'millrace.execution.rejected.v1'`, out[0]).Scan(&payload))
	require.NoError(t, json.Unmarshal(payload, &event))
	assert.Equal(t, result.RetryAfter, event.RetryAfter, "the event says the same")

	e.pass(retry - time.Hour)
	_, out = e.let(e.from("ann", 1)...)
	require.Len(t, out, 1, "an hour too early")
	assert.LessOrEqual(t, time.Duration(e.get(out[0]).Result.RetryAfter), time.Hour)
	e.pass(time.Hour)
	in, out = e.let(e.from("ann", 2)...)
	assert.Len(t, in, 1)
	assert.Len(t, out, 1)
}

// A transaction that does not commit has taken nothing, however it ends.
func TestATokenOfATransactionThatFailsIsNotLost(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, pgx.Tx) error{
		"an error":        func(context.Context, pgx.Tx) error { return errors.New("no") },
		"a broken server": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `SELECT 1/0`); return err },
		"a lost connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEntrance(t, rejects("user", limits.PerUser, 1))
			ids := e.from("ann", 2)
			tx, err := e.pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, e.Queue(t.Context(), tx, ids, e.rules))
			require.Error(t, fail(t.Context(), tx))
			_ = tx.Rollback(context.WithoutCancel(t.Context())) // the connection may be gone
			for _, id := range ids {
				require.Equal(t, execution.Requested, e.get(id).State)
			}
			require.Zero(t, e.tat("user", "default/ann"))

			in, out := e.let(ids...)
			assert.Equal(t, ids[:1], in, "in the order of the delivery")
			assert.Equal(t, ids[1:], out)
		})
	}
}

// A request that is delivered again spends no second token and is judged once.
func TestARepeatedRequestSpendsOneToken(t *testing.T) {
	t.Parallel()
	e := newEntrance(t, rejects("user", limits.PerUser, 5))
	first := e.from("ann", 2)
	var coordinators sync.WaitGroup
	for i := range 4 {
		coordinators.Go(func() {
			for range 5 {
				assert.NoError(t, e.judge(first[i%2], first[(i+1)%2], first[i%2]))
			}
		})
	}
	coordinators.Wait()
	for _, id := range first {
		assert.Equal(t, []string{"requested", "queued"}, e.history(id))
	}
	rest := e.from("ann", 5)
	in, out := e.let(rest...)
	assert.Equal(t, rest[:3], in, "two of five tokens were spent")

	in, again := e.let(out...)
	assert.Empty(t, in)
	assert.Equal(t, out, again)
	e.pass(72 * time.Hour)
	require.NoError(t, e.judge(out...))
	for _, id := range out {
		assert.Equal(t, []string{"requested", "rejected"}, e.history(id), "what is rejected stays so, also when there are tokens again")
	}
}

// Of several limits all have to have a token, or none loses one.
func TestAllTokensOrNone(t *testing.T) {
	t.Parallel()
	slower := rejects("tenant", limits.PerTenant, 3)
	slower.Rate.Per = 48 * time.Hour
	e := newEntrance(t, rejects("user", limits.PerUser, 2), slower)
	in, out := e.let(e.from("ann", 3)...)
	assert.Len(t, in, 2)
	assert.Contains(t, e.get(out[0]).Result.Message, `the limit "user" (1/d) `)
	in, out = e.let(e.from("bob", 2)...)
	assert.Len(t, in, 1, "what ann was refused has cost the tenant nothing")
	assert.Contains(t, e.get(out[0]).Result.Message, `the limit "tenant" (1/2d) `)
	bob := e.tat("user", "default/bob")
	_, out = e.let(e.from("bob", 3)...)
	assert.Len(t, out, 3)
	assert.Equal(t, bob, e.tat("user", "default/bob"), "what the tenant is refused costs the user nothing")

	_, out = e.let(e.from("ann", 1)...)
	assert.Contains(t, e.get(out[0]).Result.Message, `the limit "tenant" (1/2d) `, "of two the one that takes longer")
	assert.Greater(t, time.Duration(e.get(out[0]).Result.RetryAfter), 24*time.Hour)
}

// Who is over a limit holds up nobody else in the same delivery, and what no limit is
// for is not counted.
func TestWhoIsRejectedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	definition := rejects("user", limits.PerUser, 1)
	definition.When = `user != "root"`
	e := newEntrance(t, definition)
	ann, bob, root := e.from("ann", 3), e.from("bob", 2), e.from("root", 4)
	in, out := e.let(ann[0], ann[1], bob[0], root[0], root[1], ann[2], bob[1], root[2], root[3])
	assert.Equal(t, []string{ann[0], bob[0], root[0], root[1], root[2], root[3]}, in)
	assert.Equal(t, []string{ann[1], ann[2], bob[1]}, out)
	assert.Zero(t, e.tat("user", "default/root"))
}

// When the database's clock is set back by a day, one is let through, and from then on
// the bucket works by the new time. By a little, nothing is.
func TestAClockThatIsSetBackNeitherBlocksNorOpens(t *testing.T) {
	t.Parallel()
	e := newEntrance(t, rejects("user", limits.PerUser, 3))
	in, _ := e.let(e.from("ann", 4)...)
	require.Len(t, in, 3)
	e.pass(-30 * time.Second)
	in, _ = e.let(e.from("ann", 4)...)
	assert.Empty(t, in)
	e.pass(-24 * time.Hour)
	in, out := e.let(e.from("ann", 4)...)
	assert.Len(t, in, 1)
	require.Len(t, out, 3)
	assert.LessOrEqual(t, time.Duration(e.get(out[0]).Result.RetryAfter), 24*time.Hour)
}
