package ingest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// poison are messages of which nothing can be made, by the code that says why.
func poison() map[string]ingest.Message {
	return map[string]ingest.Message{
		"not_json":        record(1, `{"n": `),
		"not_an_object":   record(1, `[1]`),
		"mapping":         record(1, `{"n": 1, "list": 5}`),
		"invalid_request": record(1, `{"n": 1, "key": "`+strings.Repeat("x", 300)+`"}`),
		"too_large":       record(1, `{"n": "`+strings.Repeat("x", 1<<20)+`"}`),
		"unreadable":      record(1, `{}`, func(m *ingest.Message) { m.Poison = &ingest.Refusal{Code: "unreadable", Message: "it is"} }),
	}
}

func TestPoisonBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	letters := deadletter.New(deadletter.Config{Pool: b.pool})
	for code, m := range poison() {
		b.uid += "x"
		m.Event = &topics.Envelope{ID: "e-1", Source: "/there", Type: "example.order.v1"}
		outcomes := b.create(b.kafka(toFunction), record(0, `{"n": 0}`), m, record(2, `{"n": 2}`))
		require.Equal(t, []ingest.Status{ingest.Created, ingest.Refused, ingest.Created}, statuses(outcomes), code)
		var refusal *ingest.Refusal
		require.ErrorAs(t, outcomes[1].Err, &refusal)
		assert.Equal(t, code, refusal.Code)

		ids := b.strings(`SELECT id::text FROM dead_letters ORDER BY id`)
		require.Len(t, ids, 1, code)
		l, err := letters.Get(t.Context(), ids[0])
		require.NoError(t, err)
		assert.Equal(t, "trigger.orders", l.Consumer)
		assert.Equal(t, "millrace-trigger-orders", l.Group)
		assert.Equal(t, "cluster-1", l.Cluster)
		assert.Equal(t, deadletter.Open, l.Status)
		assert.Contains(t, l.Reason, code)
		assert.Equal(t, m.Body, l.Record.Value)
		assert.Equal(t, []topics.Header{{Key: "h", Value: []byte{0xff, 0}}}, l.Record.Headers)
		assert.Equal(t, topicID, l.Record.TopicID)
		assert.EqualValues(t, 3, l.Record.Partition)
		assert.EqualValues(t, 1, l.Record.Offset)
		assert.Equal(t, "e-1", l.EventID)
		assert.Equal(t, 1, b.count(`SELECT count(*) FROM outbox_events WHERE topic = 'dead_letters'`), "it is published as well")
		assert.Len(t, b.keys(), 2, "it may come again: nothing was made of it")

		// It comes again after a crash of its source: the same letter.
		assert.Equal(t, ingest.Refused, b.create(b.kafka(toFunction), m)[0].Status)
		assert.Equal(t, ids, b.strings(`SELECT id::text FROM dead_letters`))
		_, err = b.pool.Exec(t.Context(), `TRUNCATE dead_letters, outbox_events, processed_events`)
		require.NoError(t, err)
	}
}

func TestPoisonThatHasNoPlaceIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hook := b.compile(`"webhook": {"auth": {"none": true}}`, toFunction)
	for code, m := range poison() {
		m.Place, m.Identity = nil, code
		outcome := b.create(hook, m)[0]
		assert.Equal(t, ingest.Refused, outcome.Status)
		assert.ErrorContains(t, outcome.Err, "")
	}
	assert.Zero(t, b.count(`SELECT count(*) FROM dead_letters`))
	assert.Empty(t, b.keys())
	assert.Zero(t, b.count(`SELECT count(*) FROM outbox_events`))
}

func TestPoisonStallsWhereItIsWanted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction, `"on_poison": "stall"`)
	bad := record(2, `no`)
	outcomes := b.stopped(target, 2, "poison", append(records(0, 2), bad, record(3, `{"n": 3}`))...)
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Created}, statuses(outcomes))
	assert.Equal(t, []string{"0", "1"}, b.made())
	assert.Len(t, b.keys(), 2, "nothing is known of what was not taken")
	assert.Zero(t, b.count(`SELECT count(*) FROM dead_letters`))
	b.stopped(target, 0, "poison", bad, record(3, `{"n": 3}`))

	// The cause is gone: on it goes where it stood.
	target = b.kafka(toFunction)
	outcomes = b.create(target, bad, record(3, `{"n": 3}`))
	assert.Equal(t, []ingest.Status{ingest.Refused, ingest.Created}, statuses(outcomes))
}

// What was made before is a repetition, also where a new mapping does not fit it any more.
func TestPoisonThatWasMadeBeforeIsARepetition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.create(b.kafka(toFunction), record(1, `{"n": 1}`))
	for _, more := range []string{`"on_poison": "stall"`, `"on_poison": "dead_letter"`} {
		changed := b.kafka(`{"execution": {"executor": "function", "spec": {"name": "f", "args": {"n": "${body.n + body.m.x}"}}}}`, more)
		again := b.create(changed, record(1, `{"n": 1}`))
		assert.Equal(t, ingest.Duplicate, again[0].Status)
		assert.Equal(t, first[0].ID, again[0].ID)
	}
	assert.Zero(t, b.count(`SELECT count(*) FROM dead_letters`))
}

// redriving is a Redeliverer over a bench, with the store that redrives.
func redriving(b *bench, find *trigger.Compiled) (*ingest.Redeliverer, *deadletter.Store) {
	r := ingest.NewRedeliverer(ingest.RedelivererConfig{
		Pool: b.pool, Signals: postgres.NewSignals(b.pool, nil), Creator: b,
		Find: func(_ context.Context, id string) (*trigger.Compiled, error) {
			if find == nil || id != find.ID {
				return nil, nil //nolint:nilnil // there is none
			}
			return find, nil
		},
		Decode: func(cluster string, r topics.Record) ingest.Message {
			return ingest.Message{
				Body: r.Value, Key: r.Key, Headers: r.Headers,
				Place: &ingest.Place{Cluster: cluster, Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset, Record: r},
			}
		},
	})
	s := deadletter.New(deadletter.Config{
		Pool: b.pool, TopicNames: func(context.Context) ([]string, error) { return []string{"orders"}, nil },
	})
	return r, s
}

func (b *bench) redrive(s *deadletter.Store, id string, terms deadletter.Terms) {
	b.t.Helper()
	terms.Actor = "ann"
	result, err := s.Redrive(b.t.Context(), deadletter.Redrive{IDs: []string{id}, Terms: terms})
	require.NoError(b.t, err)
	require.NoError(b.t, result.Outcomes[0].Err)
}

func (b *bench) status(id string) string {
	b.t.Helper()
	return b.strings(`SELECT status FROM dead_letters WHERE id = $1`, id)[0]
}

func TestARedriveGoesThroughCreateAndNoTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := b.kafka(`{"execution": {"executor": "function", "spec": {"name": "f", "args": {"n": "${body.n.x.y}"}}}}`)
	require.Equal(t, ingest.Refused, b.create(broken, record(1, `{"n": 1}`))[0].Status)
	id := b.strings(`SELECT id::text FROM dead_letters`)[0]
	outbox := b.count(`SELECT count(*) FROM outbox_events`)

	// As long as the mapping does not fit, the letter is open again, and the same.
	redeliver, store := redriving(b, broken)
	b.redrive(store, id, deadletter.Terms{})
	assert.Equal(t, "REDRIVEN", b.status(id))
	assert.Equal(t, outbox, b.count(`SELECT count(*) FROM outbox_events`), "it goes to no topic, whatever is called orders here")
	_, err := redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "OPEN", b.status(id))
	l, err := store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, 1, l.ReplayCount)
	assert.Equal(t, []topics.Header{{Key: "h", Value: []byte{0xff, 0}}}, l.Record.Headers, "the original")
	assert.Equal(t, 1, b.count(`SELECT count(*) FROM dead_letters`))

	// Once it fits, the message is made, and it is known by its place.
	mended := b.kafka(toFunction)
	redeliver, store = redriving(b, mended)
	b.redrive(store, id, deadletter.Terms{})
	_, err = redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "RESOLVED", b.status(id))
	assert.Equal(t, []string{"1"}, b.made())
	assert.Equal(t, ingest.Duplicate, b.create(mended, record(1, `{"n": 1}`))[0].Status)
	assert.Zero(t, b.count(`SELECT count(*) FROM dead_letter_redeliveries`))

	// Once more is a repetition, unless it is forced under a new id; and that again, once.
	b.redrive(store, id, deadletter.Terms{Force: true})
	_, err = redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "RESOLVED", b.status(id))
	assert.Equal(t, []string{"1"}, b.made())
	b.redrive(store, id, deadletter.Terms{Force: true, NewID: true})
	other, _ := redriving(process(t, b.dsn, b.uid), mended)
	done := make(chan error, 1)
	go func() {
		_, err := other.Redeliver(t.Context())
		done <- err
	}()
	_, err = redeliver.Redeliver(t.Context())
	require.NoError(t, errors.Join(err, <-done))
	assert.Equal(t, []string{"1", "1"}, b.made())
	assert.Equal(t, "RESOLVED", b.status(id))
}

func TestARedriveOfATriggerThatIsGoneIsHandedBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(b.kafka(toFunction), record(1, `[]`))
	id := b.strings(`SELECT id::text FROM dead_letters`)[0]
	redeliver, store := redriving(b, nil)
	b.redrive(store, id, deadletter.Terms{})
	_, err := redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	l, err := store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, deadletter.Open, l.Status)
	assert.Contains(t, l.Reason, "trigger orders is not there")
}

// A message that cannot be taken at the moment waits, and an edit counts.
func TestARedriveWaitsForRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := b.kafka(toFunction, `"limits": {"open": 1}, "limit_action": "stall"`)
	b.create(target, record(0, `{"n": 0}`), record(1, `[]`))
	id := b.strings(`SELECT id::text FROM dead_letters`)[0]
	redeliver, store := redriving(b, target)
	value := []byte(`{"n": "edited"}`)
	require.NoError(t, store.Edit(t.Context(), deadletter.Edit{ID: id, Value: &value, Reason: "mended", After: -1, ForceSchema: true}))
	b.redrive(store, id, deadletter.Terms{})
	_, err := redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "REDRIVEN", b.status(id), "it waits")
	assert.Equal(t, []string{"0"}, b.made())

	_, err = b.pool.Exec(t.Context(), `UPDATE executions SET state = 'COMPLETED', finished_at = now()`)
	require.NoError(t, err)
	redeliver, _ = redriving(b, target) // as another process would, which does not wait
	_, err = redeliver.Redeliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "RESOLVED", b.status(id))
	assert.Equal(t, []string{"0", "edited"}, b.made())
}

// A letter of a trigger holds somebody else's message: whatever is an object is a good edit,
// which no schema of ours has a say in, and an event is none of ours either.
func TestALetterIsEditedAsTheTriggerWouldTakeIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mapped := b.kafka(toFunction)
	m := record(1, `please send two`)
	require.Equal(t, ingest.Refused, b.create(mapped, m)[0].Status)
	id := b.strings(`SELECT id::text FROM dead_letters`)[0]
	_, letters := redriving(b, mapped)
	edit := func(value string) error {
		raw := []byte(value)
		return letters.Edit(b.t.Context(), deadletter.Edit{ID: id, Value: &raw, After: -1, Actor: "ann", Reason: "asked"})
	}
	for _, value := range []string{"", "null", "[1]", `"two"`, `{"n": 2`} {
		var invalid *deadletter.InvalidEditError
		require.ErrorAs(t, edit(value), &invalid, value)
	}
	require.NoError(t, edit(`{"n": 2}`))
}
