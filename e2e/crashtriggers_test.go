package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func ofTriggers(p crash.Point) bool {
	return p.Name == "submit.guarded" || strings.HasPrefix(p.Name, "ingest.")
}

// A process that runs Kafka triggers is killed at each point of the creation; the messages
// that come again are neither lost nor doubled, whether they become executions, instances or
// dead letters.
func TestTriggerCrashPoints(t *testing.T) {
	t.Parallel()
	newTriggerCrasher(installEmbedded(t, crashSettings()...)).each()
}

func TestTriggerCrashPointsOnKafka(t *testing.T) {
	realkafka.Require(t)
	t.Parallel()
	newTriggerCrasher(installReal(t, crashSettings()...)).each()
}

// triggerRoles are those of the process that is killed.
const triggerRoles = "triggers,workflows,maintenance,relay"

type triggerCrasher struct{ *crasher }

func newTriggerCrasher(in *installation) triggerCrasher {
	c := triggerCrasher{crasherOf(in)}
	c.serve(triggerRoles)
	return c
}

func (c triggerCrasher) each() {
	_, err := c.front.client().PutDefinition(c.in.t.Context(), []byte(`{"id": "kept", "name": "Kept", "steps": [
		{"id": "w", "name": "W", "type": "WAIT", "signalName": "go", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`))
	require.NoError(c.in.t, err)
	for _, point := range crash.Points() {
		if ofTriggers(point) && isSelected(point.Name) {
			c.crash(point)
		}
	}
	c.in.stopAll()
}

// crash has a trigger read a topic with messages of all sorts, and the process that reads
// it die at the point.
func (c triggerCrasher) crash(point crash.Point) {
	t, in := c.in.t, c.in
	defer c.blame(point.Name)
	began := time.Now()
	name := strings.ReplaceAll(point.Name, ".", "-")
	_, err := kadm.NewClient(c.kafka).CreateTopic(t.Context(), 2, 1, nil, name)
	require.NoError(t, err)
	const many, bad = 40, 4
	c.produce(name, 0, many)
	c.arm(point.Name, 1)

	target := `{"execution": {"executor": "function", "spec": {"name": "f", "args": {"n": "${body.n}"}}, "labels": {"topic": "` + name + `"}}}`
	made := `SELECT request->'spec'->'args'->>'n' AS n FROM executions WHERE request->'labels'->>'topic' = '` + name + `'`
	if point.Name == "ingest.promised" || point.Name == "ingest.started" {
		target = `{"workflow": {"id": "kept", "business_key": "` + name + `", "input": {"n": "${body.n}"}}}`
		made = `SELECT variables->>'n' AS n FROM wf_instances WHERE business_key = '` + name + `'`
	}
	_, err = c.front.client().ApplyTrigger(t.Context(), name, fmt.Appendf(nil, `{"id": %q, "kafka": {"topics": [%q], "batch": 7}, "target": %s}`, name, name, target), false)
	require.NoError(t, err)
	c.awaitDeath(point)
	reached := time.Since(began)
	in.holds()

	c.back = in.serve("back", triggerRoles).ready()
	c.produce(name, many/2, many+10) // some events once more, in another place
	// A place that holds a promise is not taken yet: its instance is started a moment later.
	places := `SELECT count(*) FROM processed_events p JOIN triggers t ON p.consumer = 'trigger:' || t.uid
		WHERE t.id = $1 AND p.source LIKE 'kafka:%' AND p.target NOT LIKE 'starting/%'`
	filed := func() int { return in.count(`SELECT count(*) FROM dead_letters WHERE consumer = $1`, "trigger."+name) }
	const good = many - bad + 10 - 1 // with the new ones, of which one is bad
	const again = many/2 - bad/2
	const letters = bad + bad/2 + 1
	await(t, 2*stuckAfter, "all is taken", func() bool { return in.count(places, name) >= good+again && filed() >= letters })
	assert.Equal(t, good+again, in.count(places, name), "%s: places", point.Name)
	assert.Equal(t, good, in.count(`SELECT count(*) FROM (`+made+`) AS made`), "%s: doubled", point.Name)
	assert.Equal(t, good, in.count(`SELECT count(DISTINCT n) FROM (`+made+`) AS made`), "%s: lost", point.Name)
	assert.Equal(t, letters, filed(), "%s: letters", point.Name)
	assert.Zero(t, in.count(`SELECT count(*) FROM processed_events WHERE target LIKE 'starting/%'`), "%s: promises", point.Name)
	c.sound(point, began, reached)
}

// sound says that all is as it should be after the crash at a point, which was reached so
// long after it all began.
func (c triggerCrasher) sound(point crash.Point, began time.Time, reached time.Duration) {
	t := c.in.t
	t.Helper()
	c.in.holds()
	c.over(point.Name, began, reached)
}

// produce writes events from one number to another; one in ten is no object.
func (c triggerCrasher) produce(topic string, from, to int) {
	var records []*kgo.Record
	for n := from; n < to; n++ {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, n), Value: fmt.Appendf(nil, `{"n": %d}`, n), Headers: []kgo.RecordHeader{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: fmt.Append(nil, n)}, {Key: "ce_source", Value: []byte("/e2e")},
			{Key: "ce_type", Value: []byte("example.order.placed.v1")}, {Key: "content-type", Value: []byte("application/json")},
		}}
		if n%10 == 7 {
			r.Value = []byte(`[]`)
		}
		records = append(records, r)
	}
	require.NoError(c.in.t, c.kafka.ProduceSync(c.in.t.Context(), records...).FirstErr())
}
