package e2e

import (
	"context"
	"slices"
	"strings"

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
	await(c.in.t, stuckAfter, "its events are recorded", func() bool {
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

// judgeReplay checks that the replay has published every event that was there when it
// was made, in the order of each key, and at most one chunk of them twice.
func (c *crasher) judgeReplay(point crash.Point) {
	t, in := c.in.t, c.in
	await(t, stuckAfter, "the replay is done", func() bool {
		return in.count(`SELECT count(*) FROM replay_sessions WHERE state = 'DONE' AND idempotency_key = '`+point.Name+`'`) == 1
	})
	session := in.texts(`SELECT id::text FROM replay_sessions WHERE idempotency_key = '` + point.Name + `'`)[0]
	want := map[string][]string{} // by key
	for _, text := range in.texts(`SELECT encode(l.key, 'escape') || ' ' || l.event_id FROM event_log l
		JOIN event_log_topics t ON t.no = l.topic_no
		JOIN replay_sessions s ON s.id = '` + session + `'
		JOIN jsonb_to_recordset(s.cursor) AS c(topic_id uuid, partition integer, "to" bigint)
			ON c.topic_id = t.topic_id AND c.partition = l.partition AND l."offset" < c."to"
		WHERE l.type IS NOT NULL ORDER BY l.topic_no, l.partition, l."offset"`) {
		key, id, _ := strings.Cut(text, " ")
		if !slices.Contains(want[key], id) {
			want[key] = append(want[key], id)
		}
	}
	require.NotEmpty(t, want)
	got, repeated := map[string][]string{}, 0
	for _, r := range c.all("execution_events") {
		id := ""
		ours := false
		for _, h := range r.Headers {
			if h.Key == "ce_id" {
				id = string(h.Value)
			}
			ours = ours || h.Key == "millrace-replay-session" && string(h.Value) == session
		}
		switch key := string(r.Key); {
		case !ours:
		case slices.Contains(got[key], id):
			repeated++
		default:
			got[key] = append(got[key], id)
		}
	}
	assert.Equal(t, want, got, "what the replay has published, by key")
	const chunk = 500
	assert.LessOrEqual(t, repeated, chunk)
	if point.Name == "replay.published" {
		assert.Positive(t, repeated)
	}
}

// all returns what lies in a topic.
func (c *crasher) all(topic string) []*kgo.Record {
	t := c.in.t
	t.Helper()
	ends, err := kadm.NewClient(c.kafka).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.in.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer reader.Close()
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
