package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

func TestMessagesBecomeExecutionsInTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingest.Config) { c.MaxBatch = 4 }) // so that there are three transactions
	outcomes := b.create(b.kafka(toFunction), records(0, 10)...)
	assert.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, b.made())
	for i, o := range outcomes {
		assert.Equal(t, ingest.Created, o.Status)
		assert.Equal(t, trigger.KindExecution, o.Kind)
		e, err := b.executions.Get(t.Context(), o.ID)
		require.NoError(t, err)
		assert.Equal(t, "acme", e.Request.Tenant)
		assert.Equal(t, "ann", e.Request.User)
		origin := e.Request.Origin
		assert.JSONEq(t, fmt.Sprintf(`{"topic": "orders", "offset": %d}`, i), string(origin.Metadata))
		origin.Metadata = nil
		assert.Equal(t, topics.Origin{Kind: "kafka", Trigger: "orders"}, origin)
	}
	assert.Equal(t, 10, b.count(`SELECT count(*) FROM outbox_events WHERE event_type = 'millrace.execution.requested.v1'`))
	assert.InDelta(t, 10, b.metric("millrace_ingest_messages_total"), 0)
}

// metric is the sum of the series of a counter.
func (b *bench) metric(name string) (sum float64) {
	b.t.Helper()
	families, err := b.metrics.Gather()
	require.NoError(b.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestWhatComesAgainMakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction)
	first := b.create(target, record(1, `{"n": 1}`, identity("a")), record(2, `{"n": 2}`))

	again := b.create(target, record(1, `{"n": 1}`, identity("a")), record(2, `{"n": 2}`), record(3, `{"n": 3}`))
	assert.Equal(t, []ingest.Status{ingest.Duplicate, ingest.Duplicate, ingest.Created}, statuses(again))
	assert.Equal(t, first[0].ID, again[0].ID)
	assert.Equal(t, first[1].ID, again[1].ID)
	assert.Equal(t, trigger.KindExecution, again[0].Kind)

	// The same event at another place, and in a batch with itself.
	moved := b.create(target, record(10, `{"n": 1}`, identity("a")), record(11, `{"n": 4}`, identity("b")), record(12, `{"n": 4}`, identity("b")))
	assert.Equal(t, []ingest.Status{ingest.Duplicate, ingest.Created, ingest.Duplicate}, statuses(moved))
	assert.Equal(t, first[0].ID, moved[0].ID)
	assert.Equal(t, moved[1].ID, moved[2].ID)

	// Its place is known from then on, too, and leads to the first.
	place := b.create(target, record(10, `{"n": 1}`), record(12, `{"n": 4}`))
	assert.Equal(t, []ingest.Status{ingest.Duplicate, ingest.Duplicate}, statuses(place))
	assert.Equal(t, first[0].ID, place[0].ID)
	assert.Equal(t, moved[1].ID, place[1].ID)
	assert.Equal(t, []string{"1", "2", "3", "4"}, b.made())

	// The same place in another partition, topic or cluster is another one; so is the same event
	// for another trigger.
	other := func(change func(*ingest.Place)) ingest.Message {
		return record(1, `{"n": 9}`, func(m *ingest.Message) { change(m.Place) })
	}
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Created, ingest.Created}, statuses(b.create(target,
		other(func(p *ingest.Place) { p.Partition = 4 }),
		other(func(p *ingest.Place) { p.TopicID = [16]byte{9} }),
		other(func(p *ingest.Place) { p.Cluster = "cluster-2" }))))
	b.uid = "another"
	assert.Equal(t, ingest.Created, b.create(b.kafka(toFunction), record(1, `{"n": 1}`, identity("a")))[0].Status)
}

func TestAMessageIsKnownByItsNonceAsWell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.compile(`"webhook": {"auth": {"none": true}}`, toFunction)
	request := func(id, nonce string) ingest.Message {
		return ingest.Message{Body: []byte(`{"n": 1}`), Identity: id, Nonce: nonce}
	}
	first := b.create(hook, request("a", "n1"))
	for _, m := range []ingest.Message{request("a", "n2"), request("b", "n1"), request("", "n1")} {
		again := b.create(hook, m)
		assert.Equal(t, ingest.Duplicate, again[0].Status)
		assert.Equal(t, first[0].ID, again[0].ID)
	}
	assert.Equal(t, ingest.Created, b.create(hook, request("", ""))[0].Status)
	assert.Equal(t, ingest.Created, b.create(hook, request("", ""))[0].Status, "nothing tells a repetition")
}

func TestMessagesThatAreSentByManyAtOnceAreMadeOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	processes := []*bench{b, process(t, b.dsn, b.uid), process(t, b.dsn, b.uid), process(t, b.dsn, b.uid)}
	const many = 120
	created := make([][]string, len(processes))
	var wait sync.WaitGroup
	for p, process := range processes {
		target := process.kafka(toFunction)
		wait.Go(func() {
			// Each in batches of its own size, from another place on, with the same events at
			// other places too.
			size := int64(7 + 4*p)
			for turn := range int64(2) {
				for from := int64(0); from < many; from += size {
					var batch []ingest.Message
					for n := from; n < min(from+size, many); n++ {
						n := (n + int64(p)*many/4) % many
						offset := n
						if turn == 1 {
							offset += 1000 * int64(p+1)
						}
						batch = append(batch, record(offset, fmt.Sprintf(`{"n": %d, "key": "c%d"}`, n, n%5), identity(fmt.Sprint("event-", n))))
					}
					outcomes, err := process.Create(t.Context(), target, batch)
					if !assert.NoError(t, err) {
						return
					}
					for _, o := range outcomes {
						if o.Status == ingest.Created {
							created[p] = append(created[p], o.ID)
						} else {
							assert.Equal(t, ingest.Duplicate, o.Status)
							assert.NotEmpty(t, o.ID)
						}
					}
				}
			}
		})
	}
	wait.Wait()
	all := map[string]bool{}
	for _, list := range created {
		for _, id := range list {
			assert.False(t, all[id], "told twice")
			all[id] = true
		}
	}
	assert.Len(t, all, many)
	assert.Equal(t, many, b.count(`SELECT count(*) FROM executions`))
	assert.Equal(t, many, b.count(`SELECT count(DISTINCT request->'spec'->'args'->>'n') FROM executions`))
	assert.Zero(t, b.count(`SELECT count(*) FROM processed_events p WHERE NOT EXISTS (SELECT FROM executions e WHERE p.target = 'execution/' || e.id)`))
}

func TestOneRefusedRequestLeavesItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction)
	messages := records(0, 8)
	// What no check sees before the database does: half of a character.
	messages[5].Body = []byte(`{"n": "\ud800"}`)
	messages[6].Body = []byte(`{"n": "\u0000"}`)
	messages[7].Body = []byte(`{"n": "\\u0000 is text"}`)
	outcomes := b.create(target, messages...)
	assert.Equal(t, []ingest.Status{
		ingest.Created, ingest.Created, ingest.Created, ingest.Created, ingest.Created, ingest.Refused, ingest.Refused, ingest.Created,
	}, statuses(outcomes))
	for _, o := range outcomes[5:7] {
		var refusal *ingest.Refusal
		require.ErrorAs(t, o.Err, &refusal)
		assert.Equal(t, "invalid_request", refusal.Code)
	}
	assert.Equal(t, []string{"0", "1", "2", "3", "4", `\u0000 is text`}, b.made())
	assert.Equal(t, 2, b.count(`SELECT count(*) FROM dead_letters`))
}

func TestTheSameBodyGivesTheSameWhateverItsSource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sources := map[string]string{
		"kafka":    `"kafka": {"topics": ["orders"]}`,
		"webhook":  `"webhook": {"auth": {"none": true}}`,
		"schedule": `"schedule": {"cron": "@hourly"}`,
	}
	body := `{"n": 7, "key": "customer-1"}`
	messages := map[string]ingest.Message{
		"kafka":    record(1, body),
		"webhook":  {Body: []byte(body), Metadata: map[string]string{"method": "POST"}, Identity: "key:1"},
		"schedule": {Body: []byte(body), Identity: "schedule:2026-01-01T00:00:00Z"},
	}
	var requests []topics.Request
	var events []string
	for kind, source := range sources {
		outcome := b.create(b.compile(source, toFunction), messages[kind])[0]
		e, err := b.executions.Get(t.Context(), outcome.ID)
		require.NoError(t, err)
		assert.Equal(t, kind, e.Request.Origin.Kind)
		e.Request.Origin = topics.Origin{}
		requests = append(requests, e.Request)

		payload := b.strings(`SELECT convert_from(payload, 'UTF8') FROM outbox_events WHERE aggregate_id = $1`, outcome.ID)
		require.Len(t, payload, 1)
		var event topics.ExecutionRequested
		require.NoError(t, json.Unmarshal([]byte(payload[0]), &event))
		event.Request.Origin, event.ExecutionID = topics.Origin{}, ""
		event.RequestedAt = time.Time{}
		text, err := json.Marshal(event)
		require.NoError(t, err)
		events = append(events, string(text))

		row := b.strings(`SELECT to_jsonb(e) - 'id' - 'request' - 'requested_at' - 'concurrency_seq' FROM executions e WHERE id::text = $1`, outcome.ID)
		events = append(events, row...)
	}
	assert.Equal(t, requests[0], requests[1])
	assert.Equal(t, requests[0], requests[2])
	for n := range 2 {
		assert.Equal(t, events[n], events[n+2])
		assert.Equal(t, events[n], events[n+4])
	}
}

// The database does not answer: nothing is stored, and the error says so to the source.
func TestADatabaseThatIsAwayIsNoFaultOfTheMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := process(t, "postgres://nobody@127.0.0.1:1/nowhere?connect_timeout=5", b.uid)
	outcomes, err := away.Create(t.Context(), away.kafka(toFunction), records(0, 3))
	require.Error(t, err)
	assert.True(t, postgres.IsInfrastructure(err), err)
	var blocked *ingest.BlockedError
	assert.NotErrorAs(t, err, &blocked)
	assert.Empty(t, outcomes)
	assert.InDelta(t, 1, away.metric("millrace_ingest_blocked_total"), 0)
}

// A caller that leaves is told nothing, and nothing is stored.
func TestACallerThatHasLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	outcomes, err := b.Create(ctx, b.kafka(toFunction), records(0, 3))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, outcomes)
	assert.Empty(t, b.made())
}
