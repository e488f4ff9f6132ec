package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func ofSagas(point crash.Point) bool { return strings.HasPrefix(point.Name, "saga.") }

// sagaCrash kills the orchestrator at one passing of a point, counted from the start of a
// saga.
type sagaCrash struct {
	point   string
	passing int
	when    string
	// late: a hurried trip, whose hotel is booked when the saga has given it up. Otherwise
	// the trip has its flight and its hotel booked and no car, and undoes both.
	late bool
}

// A trip is a start, the replies of flight, hotel and car (which fails), and those of the
// two compensations.
func sagaCrashes() []sagaCrash {
	return []sagaCrash{
		{point: "saga.command_appended", passing: 1, when: "as it starts"},
		{point: "saga.reply_read", passing: 1, when: "the flight is booked"},
		{point: "saga.reply_applying", passing: 1, when: "the flight is booked"},
		{point: "saga.reply_applied", passing: 1, when: "between flight and hotel"},
		{point: "saga.command_appended", passing: 3, when: "the hotel is booked"},
		{point: "saga.reply_applied", passing: 2, when: "between hotel and car"},
		{point: "saga.reply_applying", passing: 3, when: "the car has failed"},
		{point: "saga.compensating", passing: 1, when: "between car and the first compensation"},
		{point: "saga.command_appended", passing: 5, when: "the hotel is cancelled"},
		{point: "saga.compensated", passing: 1, when: "between the compensations"},
		{point: "saga.reply_applying", passing: 5, when: "the flight is cancelled"},
		{point: "saga.reply_applied", passing: 5, when: "all is undone"},
		{point: "saga.compensating", passing: 1, when: "the hotel's time is over", late: true},
		{point: "saga.reply_applied", passing: 2, when: "the hotel is cancelled", late: true},
	}
}

// Case A5: the orchestrator is killed between each step and each compensation, while every
// command and every reply comes twice and some come late. Every saga undoes what it did,
// once, the last first (invariant I10); effects are counted in PostgreSQL.
func TestSagaCrashPoints(t *testing.T) {
	t.Parallel()
	newSagaCrasher(installEmbedded(t, crashSettings()...)).each(sagaCrashes())
}

func TestSagaCrashPointsOnKafka(t *testing.T) {
	realkafka.Require(t)
	t.Parallel()
	newSagaCrasher(installReal(t, crashSettings()...)).each(sagaCrashes())
}

// Every point of sagas is one of the crashes.
func TestSagaCrashesAreThePoints(t *testing.T) {
	t.Parallel()
	for _, point := range crash.Points() {
		if ofSagas(point) {
			assert.True(t, slices.ContainsFunc(sagaCrashes(), func(c sagaCrash) bool { return c.point == point.Name }), point.Name)
		}
	}
}

// sagaCrasher is a crasher whose back process orchestrates and does all else that
// Millrace has to do; the participant is a program of its own, which lives on.
type sagaCrasher struct{ *crasher }

func newSagaCrasher(in *installation) sagaCrasher {
	c := sagaCrasher{crasherOf(in)}
	c.alive = tripName
	c.back = in.serve("orchestrator", workflowRoles).ready()
	in.sagas("participant")
	in.parrot()
	return c
}

func (c sagaCrasher) each(crashes []sagaCrash) {
	var ids []string
	for _, x := range crashes {
		if isSelected(x.point) {
			ids = append(ids, c.crash(x))
		}
	}
	c.repeatAll()
	for _, id := range ids {
		c.judge(id, "at the end")
	}
	c.in.stopAll()
}

// crash starts a saga, has the orchestrator die, starts it again, and judges the saga.
func (c sagaCrasher) crash(x sagaCrash) (id string) {
	t, in := c.in.t, c.in
	what := fmt.Sprintf("%s %d (%s)", x.point, x.passing, x.when)
	defer c.blame(what)
	began := time.Now()
	c.arm(x.point, x.passing)

	ask := client.NewSaga{Name: tripName, ID: uuid.NewString(), State: []byte(`{"fail_at":"car"}`)}
	if x.late {
		ask.Name, ask.State = hurriedName, []byte(`{"slow_at":"hotel"}`)
	}
	_, refused := c.back.client().StartSaga(t.Context(), ask)
	c.awaitDeath(crash.Point{Name: x.point})
	reached := time.Since(began)
	in.holds()
	c.bury(true)
	c.back = in.serve("orchestrator", workflowRoles).ready()
	if refused != nil {
		_, err := c.back.client().StartSaga(t.Context(), ask)
		require.NoError(t, err, "the second time")
	}
	c.judge(ask.ID, x.when)
	c.over(what, began, reached)
	return ask.ID
}

// judge checks invariant I10 of a saga that cannot succeed.
func (c sagaCrasher) judge(id, when string) {
	t, in := c.in.t, c.in
	t.Helper()
	require.Equal(t, "COMPENSATED", in.sagaRests(id), "%s: saga %s", when, id)
	effects := in.tripEffects(id)
	// On a slow machine the command of a hurried hotel may come too late, and is refused: it
	// has no effect, and is in doubt unless the refusal is heard before the time is over.
	refused := in.hurried(id) && slices.Equal([]string{"flight", "undo flight"}, effects)
	if !refused {
		assert.Equal(t, []string{"flight", "hotel", "undo hotel", "undo flight"}, effects, "%s: effects of saga %s", when, id)
	}
	// The journal tells the same: each step is undone once, in the reverse order.
	told := in.texts(fmt.Sprintf(`
		SELECT e->>'step_id' FROM wf_journal j, json_array_elements(j.entries) e
		WHERE j.instance_id = '%s' AND e->>'kind' = 'step-completed' AND coalesce((e->>'compensates')::int, 0) > 0 ORDER BY j.version`, id))
	if !refused || len(told) != 1 {
		assert.Equal(t, []string{"hotel", "flight"}, told, "%s: what saga %s has undone", when, id)
	}
	assert.Zero(t, in.count(`SELECT count(*) FROM wf_timers WHERE instance_id = $1::uuid`, id), "%s: timers are left", when)
}

func (in *installation) hurried(id string) bool {
	return in.count(`SELECT count(*) FROM wf_instances WHERE id = $1::uuid AND definition_id = $2`, id, hurriedName) == 1
}

// again marks a record that a test has repeated.
const again = "e2e-again"

// isSagaTalk reports whether a record is a command or a reply, and no repetition.
func isSagaTalk(r *kgo.Record) bool {
	for _, h := range r.Headers {
		if h.Key == again {
			return false
		}
	}
	return slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == "ce_type" && (bytes.Contains(h.Value, []byte("saga.command.")) || bytes.Contains(h.Value, []byte("saga.reply.")))
	})
}

func repeated(r *kgo.Record) *kgo.Record {
	return &kgo.Record{
		Topic: r.Topic, Key: r.Key, Value: r.Value, Partition: r.Partition,
		Headers: append(slices.Clone(r.Headers), kgo.RecordHeader{Key: again, Value: []byte("1")}),
	}
}

func (in *installation) sagaTopics() *kgo.Client {
	reader, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...), kgo.ConsumeTopics("saga_commands", "saga_events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(in.t, err)
	return reader
}

// parrot repeats every command and every reply at once.
func (in *installation) parrot() {
	ctx := in.t.Context()
	parrot := in.sagaTopics()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			parrot.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				if isSagaTalk(r) {
					parrot.Produce(ctx, repeated(r), nil)
				}
			})
		}
	}()
	in.t.Cleanup(func() { <-done; parrot.Close() })
}

// repeatAll repeats every command and every reply that there ever was, long after the
// sagas have ended, and waits until all of it has been read.
func (c sagaCrasher) repeatAll() {
	t := c.in.t
	t.Helper()
	admin := kadm.NewClient(c.kafka)
	ends, err := admin.ListEndOffsets(t.Context(), "saga_commands", "saga_events")
	require.NoError(t, err)
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	reader := c.in.sagaTopics()
	defer reader.Close()
	var all []*kgo.Record
	for left > 0 {
		fetched := reader.PollFetches(t.Context())
		require.NoError(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset < end.Offset {
				left--
			}
			if isSagaTalk(r) {
				all = append(all, repeated(r))
			}
		})
	}
	require.NotEmpty(t, all)
	require.NoError(t, reader.ProduceSync(t.Context(), all...).FirstErr())
	c.in.await("the repetitions are read", func() bool {
		lags, err := admin.Lag(t.Context())
		if err != nil {
			return false
		}
		for _, group := range lags.Sorted() {
			if !strings.Contains(group.Group, "saga-") {
				continue
			}
			if group.Error() != nil || group.Lag.Total() != 0 {
				return false
			}
		}
		return true
	})
}
