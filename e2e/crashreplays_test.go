package e2e

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
)

func ofReplays(point crash.Point) bool { return strings.HasPrefix(point.Name, "replay.") }

// record has something done that the event log then has.
func (c *crasher) record(point crash.Point) {
	api := c.front.client()
	p := run(client.ProcessSpec{Command: sh("true")}, want{state: client.Completed})
	p.request.IdempotencyKey = point.Name + "-recorded"
	ids, err := submitOnce(c.in.t.Context(), api, []client.Request{p.request})
	require.NoError(c.in.t, err)
	c.in.await("its events are recorded", func() bool {
		return c.in.count(`SELECT count(*) FROM event_log WHERE type = 'millrace.execution.completed.v1' AND subject = '`+ids[0]+`'`) == 1
	})
}

// replay asks once for a replay of all events to the view of executions, under a key.
func (c *crasher) replay(point crash.Point, api *client.Client) error {
	_, err := api.CreateReplay(c.in.t.Context(), client.NewReplay{
		Target: client.ReplayTarget{Consumer: "executions-view"}, Filter: &client.ReplayFilter{Types: []string{"*"}}, Reason: "test",
	}, point.Name)
	return err
}

// judgeReplay checks the replay of a point.
func (c *crasher) judgeReplay(point crash.Point) {
	repeated := c.in.replayed(point.Name)
	if point.Name == "replay.published" {
		assert.Positive(c.in.t, repeated)
	}
}

// replayed waits until the replay under a key is done, and checks that it has published
// every event that was there when it was made, in the order of each key, and at most
// one chunk of them twice. It returns how many it has, beside those that the log has twice.
func (in *installation) replayed(key string) (repeated int) {
	t := in.t
	t.Helper()
	in.await("the replay is done", func() bool {
		return in.count(`SELECT count(*) FROM replay_sessions WHERE state = 'DONE' AND idempotency_key = $1`, key) == 1
	})
	session := in.texts(`SELECT id::text FROM replay_sessions WHERE idempotency_key = '` + key + `'`)[0]
	want := map[string][]string{} // by key
	for _, text := range in.texts(`SELECT encode(l.key, 'escape') || ' ' || l.event_id FROM event_log l
		JOIN event_log_topics t ON t.no = l.topic_no
		JOIN replay_sessions s ON s.id = '` + session + `'
		JOIN jsonb_to_recordset(s.cursor) AS c(topic_id uuid, partition integer, "to" bigint)
			ON c.topic_id = t.topic_id AND c.partition = l.partition AND l."offset" < c."to"
		WHERE l.type IS NOT NULL ORDER BY l.topic_no, l.partition, l."offset"`) {
		key, id, _ := strings.Cut(text, " ")
		if slices.Contains(want[key], id) {
			repeated-- // a relay that crashed has published it twice, and both lie in the log
			continue
		}
		want[key] = append(want[key], id)
	}
	require.NotEmpty(t, want)
	got := map[string][]string{}
	for _, r := range in.all("execution_events") {
		header := func(name string) string {
			at := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
			if at < 0 {
				return ""
			}
			return string(r.Headers[at].Value)
		}
		switch key, id := string(r.Key), header("ce_id"); {
		case header("millrace-replay-session") != session:
		case slices.Contains(got[key], id):
			repeated++
		default:
			got[key] = append(got[key], id)
		}
	}
	assert.Equal(t, want, got, "what the replay has published, by key")
	const chunk = 500
	assert.LessOrEqual(t, repeated, chunk)
	return repeated
}

// all returns what lies in a topic.
func (in *installation) all(topic string) []*kgo.Record {
	t := in.t
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer reader.Close()
	ends, err := kadm.NewClient(reader).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), stuckAfter)
	defer cancel()
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "read %s", topic)
		fetches.EachRecord(func(r *kgo.Record) {
			records = append(records, r)
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
	return records
}

// The process that carries a replay out is stopped in the middle of it for longer than
// its lease, and goes on when another has taken over: it has nothing more to say.
func TestReplayOfAFrozenKeeper(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	front := in.serve("front", "api,coordinator,worker,relay,projections").ready()
	keepers := map[string]*process{
		"keeper-1": in.serve("keeper-1", "maintenance", "--set", "worker.id=keeper-1"), "keeper-2": in.serve("keeper-2", "maintenance", "--set", "worker.id=keeper-2"),
	}
	for _, k := range keepers {
		k.ready()
	}
	requests := make([]client.Request, 60)
	for i := range requests {
		requests[i] = client.Request{Executor: "function", Spec: []byte(`{"name":"echo","args":1}`)}
	}
	in.submit(front.client(), requests)
	in.await("all is recorded", func() bool {
		return in.count(`SELECT count(*) FROM event_log WHERE type = 'millrace.execution.completed.v1'`) == len(requests)
	})
	const key = "frozen"
	_, err := front.client().CreateReplay(t.Context(), client.NewReplay{Target: client.ReplayTarget{Consumer: "executions-view"}, Rate: 40}, key)
	require.NoError(t, err)
	published := func() int {
		return in.count(`SELECT published FROM replay_sessions WHERE idempotency_key = $1`, key)
	}
	in.await("some is published", func() bool { return published() >= 20 })
	owner := func() string {
		name, _, _ := strings.Cut(in.texts(`SELECT owner FROM leases WHERE name = 'replays'`)[0], "/")
		return name
	}
	first := owner()
	frozen := keepers[first]
	require.NotNil(t, frozen, first)
	require.NoError(t, frozen.child.Signal(syscall.SIGSTOP))
	in.await("the other one takes over", func() bool { return owner() != first })
	at := published()
	require.Less(t, at, 300, "it is in the middle of it")
	in.await("it goes on", func() bool { return published() > at })
	require.NoError(t, frozen.child.Signal(syscall.SIGCONT))
	in.replayed(key)
	assert.Equal(t, in.count(`SELECT count(*) FROM event_log`), published())
	in.settled()
	in.verified()
	assert.True(t, frozen.running())
	in.stopAll()
}
