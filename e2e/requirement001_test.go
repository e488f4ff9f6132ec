package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// Requirement 001 has six success criteria. Four are here; those about where code may know of
// Kafka are in internal/archtest.

// Requirement 001: a message that fails to persist is never lost, the offset is not committed,
// and Kafka redelivers. Here nothing that a trigger needs keeps working: the database, the
// brokers, the connections and the process itself go away, or stop and come back as ghosts,
// under a Kafka trigger, a webhook and a schedule. What was sent is made once, and of each
// partition in its order.
func TestRequirement001_NoMessageIsLost(t *testing.T) {
	t.Parallel()
	t.Run("embedded broker", func(t *testing.T) {
		t.Parallel()
		in, away, back := restartable(t)
		in.losesNothing(away, back)
	})
	t.Run("Apache Kafka", func(t *testing.T) {
		realkafka.Require(t)
		t.Parallel()
		in := installReal(t)
		in.losesNothing(func() { require.NoError(t, in.kafka.Kill(0)) }, func() { require.NoError(t, in.kafka.Restart(t.Context(), 0)) })
	})
}

func (in *installation) losesNothing(brokerAway, brokerBack func()) {
	t := in.t
	began := time.Now()
	phase := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	hosts := map[string]*process{"one": in.host("one"), "two": in.host("two")}
	for _, p := range hosts {
		p.ready()
	}
	api := hosts["one"].client()
	orders := in.numbered("orders", 12)
	orders.apply(api, nil, nil)
	hook := in.webhook(api, "hook", nil)
	in.secondly(api, "tick")
	orders.sendAll(3)
	hook.send(hosts["two"], 3)
	orders.done()

	phase("the database is killed")
	in.postgres.Kill()
	orders.sendAll(3)
	status, header, body := hook.post(hosts["one"], hook.next)
	assert.Equal(t, http.StatusServiceUnavailable, status, body)
	assert.NotEmpty(t, header.Get("Retry-After"))
	committed := orders.committed()
	assert.Equal(t, slices.Repeat([]int{3}, 12), committed, "nothing is committed that nobody could store")
	in.postgres.Start()
	orders.stored(committed)
	hook.send(hosts["one"], 3)
	orders.done()

	phase("the brokers are killed")
	brokerAway()
	hook.send(hosts["one"], 3) // for which nobody needs Kafka
	brokerBack()
	orders.sendAll(3)
	orders.done()

	phase("connections break")
	for range 5 {
		orders.sendAll(1)
		require.Eventually(t, func() bool {
			return in.count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) >= 0
		}, stuckAfter, 50*time.Millisecond)
		hook.send(hosts["two"], 1)
	}
	orders.done()

	owner := ""
	await(t, stuckAfter, "somebody has the trigger", func() bool { owner = orders.owner(api); return owner != "" })
	phase(owner + ", which has the trigger, is killed")
	orders.sendAll(2)
	hosts[owner].sigkill()
	died := time.Now()
	delete(hosts, owner)
	other := slices.Sorted(maps.Keys(hosts))[0]
	api = hosts[other].client()
	orders.sendAll(1)
	hook.send(hosts[other], 3)
	orders.done()
	t.Logf("%s has taken over and caught up after %s", other, time.Since(died).Round(10*time.Millisecond))

	phase(other + " stands still for so long that it is taken for dead")
	hosts["three"] = in.host("three").ready()
	api = hosts["three"].client()
	await(t, stuckAfter, other+" has the trigger", func() bool { owner = orders.owner(api); return owner != "" })
	ghost := hosts[owner]
	awake := hosts["three"]
	if owner == "three" { // it was given the member, so that each process has one
		awake = hosts[other]
	}
	api = awake.client()
	require.NoError(t, ghost.child.Signal(syscall.SIGSTOP))
	orders.sendAll(2)
	hook.send(awake, 3)
	in.once(orders.id, orders.next)
	require.NoError(t, ghost.child.Signal(syscall.SIGCONT))
	phase("it goes on")
	orders.sendAll(2)
	hook.send(ghost, 3)
	orders.done()

	hook.done()
	in.everySecond("tick")
	in.holds()
	assert.Zero(t, in.count(`SELECT count(*) FROM dead_letters`))
	orders.runs(api)
	phase("all is made, once")
	in.stopAll()
}

// Requirement 001: what Kafka starts is made by the same function as what webhooks start, can
// be told by its trigger and its metadata, and is the same in everything that follows. The
// same request comes from a topic, a webhook, a schedule and the API; what people see of the
// four, and can do with them, is equal but for the origin.
func TestRequirement001_AllSourcesMakeTheSame(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	p := in.host("all", "coordinator", "worker", "projections").ready()
	api := p.client()
	in.createTopic("by-kafka", 1)
	spec := func(customer string) map[string]any {
		return map[string]any{
			"executor": "process", "labels": map[string]any{"of": "equals"}, "priority": 2,
			"spec": map[string]any{"command": []string{"sh", "-c", `echo "order of $1"; exit 3`, "sh", customer}},
		}
	}
	target := map[string]any{"execution": spec("${body.customer}")}
	source := map[string]map[string]any{
		"kafka":    {"topics": []string{"by-kafka"}},
		"webhook":  {"auth": map[string]any{"none": true}},
		"schedule": {"at": []time.Time{time.Now()}, "input": map[string]any{"customer": "ada"}},
	}
	for kind, source := range source {
		in.apply(api, map[string]any{"id": "by-" + kind, kind: source, "target": target}, nil)
	}
	record := &kgo.Record{
		Topic: "by-kafka", Key: []byte{0xff, 0}, Value: []byte(`{"customer": "ada"}`), Timestamp: time.UnixMilli(1_700_000_000_123),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("one")}, {Key: "trace", Value: []byte{0, 0xfe}}},
	}
	in.asked(func(kafka *kgo.Client, _ *kadm.Client) {
		require.NoError(t, kafka.ProduceSync(t.Context(), record).FirstErr())
	})
	resp, err := http.Post(p.address("api")+"/hooks/by-webhook", "application/json", strings.NewReader(`{"customer": "ada"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	text, err := json.Marshal(spec("ada"))
	require.NoError(t, err)
	var request client.Request
	require.NoError(t, json.Unmarshal(text, &request))
	_, err = api.Submit(t.Context(), request)
	require.NoError(t, err)

	ids := map[string]string{} // by the kind of origin
	await(t, stuckAfter, "all four have run", func() bool {
		for e, err := range api.List(t.Context(), client.Filter{Labels: map[string]string{"of": "equals"}, States: []string{client.Failed}}) {
			if err != nil {
				return false
			}
			one, err := api.Get(t.Context(), e.ID)
			require.NoError(t, err)
			ids[one.Origin.Kind] = e.ID
		}
		return len(ids) == 4
	})
	in.settled()
	want := in.seen(api, ids["rest"])
	for kind := range source {
		assert.Equal(t, want, in.seen(api, ids[kind]), "what the %s has started", kind)
	}

	origins := map[string]client.Origin{}
	for kind, id := range ids {
		e, err := api.Get(t.Context(), id)
		require.NoError(t, err)
		origins[kind] = *e.Origin
	}
	for kind := range source {
		assert.Equal(t, "by-"+kind, origins[kind].Trigger)
	}
	assert.JSONEq(t, `{"topic": "by-kafka", "partition": 0, "offset": 0, "timestamp": "2023-11-14T22:13:20.123Z", "key": {"base64": "/wA="},
		"headers": [{"name": "trace", "value": "one"}, {"name": "trace", "value": {"base64": "AP4="}}]}`, string(origins["kafka"].Metadata))
	for kind, part := range map[string]string{"webhook": `"POST"`, "schedule": `"scheduled_at"`} {
		assert.Contains(t, string(origins[kind].Metadata), part)
	}

	// Whatever becomes of one later on works for all: here it runs again.
	for kind, id := range ids {
		again, err := api.Rerun(t.Context(), id, "once more", "")
		require.NoError(t, err, kind)
		e := in.becomes(api, again.ID, client.Failed)
		assert.Equal(t, id, e.Origin.RerunOf, kind)
	}
	in.stopAll()
}

// seen is all that people see of an execution but for whence and when it came: itself, its
// output and its history.
func (in *installation) seen(api *client.Client, id string) map[string]any {
	t := in.t
	t.Helper()
	e, err := api.Get(t.Context(), id)
	require.NoError(t, err)
	text, err := json.Marshal(e)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	for name := range all {
		if name == "id" || name == "origin" || strings.HasSuffix(name, "_at") {
			delete(all, name)
		}
	}
	if result, ok := all["result"].(map[string]any); assert.True(t, ok) {
		delete(result, "duration_millis")
	}
	all["history"] = in.texts(fmt.Sprintf(`SELECT type FROM event_log l WHERE subject = '%s' AND %s ORDER BY sequence`, id, ofExecutions("l")))
	all["view"] = in.texts(fmt.Sprintf(`SELECT state || ' ' || version FROM execution_views WHERE id = '%s'`, id))
	return all
}

// Requirement 001: no alternate storage, no recovery by hand, no mails. A message that cannot
// become an execution yet is in Kafka alone; when it can, it is made without anybody's help.
// And the consumer does no more than it says: it receives, it creates, it commits what is
// stored. The reason here is a run limit; the webhook and the schedule wait alike.
func TestRequirement001_WhatWaitsIsInKafkaAlone(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(in *installation) {
		p := in.host("all", "coordinator").ready()
		in.runLimit(p)
		in.stopAll()
	})
}

func (in *installation) runLimit(p *process) {
	t, api := in.t, p.client()
	const room, many = 5, 12
	limited := func(open int) map[string]any {
		return map[string]any{"limits": map[string]any{"open": open}, "limit_action": "stall"}
	}
	orders := in.numbered("orders", 2)
	orders.apply(api, nil, limited(room))
	orders.send(1, many)
	at := orders.stands(api, 1, "limit_reached")
	assert.EqualValues(t, room, at.Offset)
	assert.Equal(t, "key-5", string(at.Key))
	assert.NotEmpty(t, at.Cause.Message)
	assert.NotEmpty(t, at.Cause.Hint)
	assert.NotNil(t, at.NextTry)
	assert.Equal(t, numbers(0, room), in.made(orders.id))
	await(t, stuckAfter, "the offset of what waits is the group's", func() bool { return slices.Equal([]int{0, room}, orders.committed()) })
	for n := range many {
		places := in.mentioning(orders.text(n))
		if n < room {
			assert.NotEmpty(t, places, "what is made is somewhere")
			continue
		}
		assert.Empty(t, places, "message %d is to be in Kafka alone", n)
		assert.NotContains(t, p.log(), orders.text(n))
	}

	hook := in.webhook(api, "hook", limited(1))
	hook.accepted(p, 0)
	status, header, body := hook.post(p, 1)
	assert.Equal(t, http.StatusServiceUnavailable, status, body)
	assert.NotEmpty(t, header.Get("Retry-After"))
	assert.Empty(t, in.mentioning("hook-1"))
	now := time.Now()
	in.apply(api, map[string]any{
		"id": "tick", "schedule": map[string]any{"at": []time.Time{now.Add(-2 * time.Second), now.Add(-time.Second)}, "missed": "all"},
		"target": map[string]any{"execution": map[string]any{
			"executor": "function", "spec": map[string]any{"name": "f", "args": map[string]any{"n": "${meta.scheduled_at}"}},
		}},
	}, limited(1))
	firing := `SELECT count(*) FROM schedule_firings WHERE status = $1`
	await(t, stuckAfter, "one time is started, and one waits", func() bool {
		return in.count(firing, "started") == 1 && in.count(firing+` AND cause->>'code' = 'limit_reached'`, "due") == 1
	})

	// Room is made as it goes; nobody touches a trigger.
	await(t, 2*stuckAfter, "all is made", func() bool {
		for _, id := range in.texts(`SELECT id::text FROM executions WHERE finished_at IS NULL AND request->'origin'->>'trigger' IN ('orders', 'tick')`) {
			_, err := api.Cancel(t.Context(), id, "make room")
			require.NoError(t, err)
		}
		return len(in.made(orders.id)) == many && in.count(firing, "started") == 2
	})
	orders.done()
	orders.runs(api)
	assert.Equal(t, 2, in.count(`SELECT count(DISTINCT request->'spec'->'args'->>'n') FROM executions WHERE request->'origin'->>'trigger' = 'tick'`))
	for _, id := range in.texts(`SELECT id::text FROM executions WHERE request->'origin'->>'trigger' = 'hook'`) {
		_, err := api.Cancel(t.Context(), id, "make room")
		require.NoError(t, err)
	}
	hook.accepted(p, 1)
	hook.next = 2
	hook.done()
	assert.Zero(t, in.count(`SELECT count(*) FROM dead_letters`))
	in.holds()
}

// mentioning is where a text is: the tables of the database and the files of the processes
// that have it, as it is or as bytes in hex.
func (in *installation) mentioning(text string) (places []string) {
	t := in.t
	t.Helper()
	tables := in.texts(`SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1`)
	require.NotEmpty(t, tables)
	queries := &pgx.Batch{}
	for _, table := range tables {
		queries.Queue(`SELECT EXISTS (SELECT FROM `+table+` AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, $2) > 0)`, text, hex.EncodeToString([]byte(text)))
	}
	results := in.db.SendBatch(t.Context(), queries)
	defer results.Close()
	for _, table := range tables {
		var there bool
		require.NoError(t, results.QueryRow().Scan(&there))
		if there {
			places = append(places, table)
		}
	}
	require.NoError(t, filepath.WalkDir(in.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			places = append(places, path)
		}
		return err
	}))
	return places
}
