package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/testenv"
)

// hostRoles are those of a process that runs triggers of every type.
const hostRoles = "api,triggers,relay,maintenance"

// host starts a process that runs triggers. Members say its name as that of their owner.
func (in *installation) host(name string, more ...string) *process {
	in.t.Helper()
	roles := strings.Join(append([]string{hostRoles}, more...), ",")
	return in.serve(name, roles, "--set", "worker.id="+name)
}

// at is the installation as a subtest sees it.
func (in *installation) at(t *testing.T) *installation {
	return &installation{t: t, dir: in.dir, token: in.token, brokers: in.brokers, dsn: in.dsn, sets: in.sets, db: in.db}
}

// eachBroker runs a test in an installation on the embedded broker, and one on Apache Kafka.
func eachBroker(t *testing.T, test func(in *installation)) {
	t.Run("embedded broker", func(t *testing.T) {
		t.Parallel()
		test(installEmbedded(t))
	})
	t.Run("Apache Kafka", func(t *testing.T) {
		t.Parallel()
		test(installReal(t))
	})
}

// asked runs something with a client of the brokers. Each has its own: none knows of a topic
// or a broker that is gone.
func (in *installation) asked(do func(*kgo.Client, *kadm.Client)) {
	in.t.Helper()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(in.t, err)
	defer kafka.Close()
	do(kafka, kadm.NewClient(kafka))
}

func (in *installation) createTopic(name string, partitions int) {
	in.t.Helper()
	in.asked(func(_ *kgo.Client, admin *kadm.Client) {
		await(in.t, stuckAfter, "topic "+name+" is made", func() bool {
			_, err := admin.CreateTopic(in.t.Context(), int32(partitions), 1, nil, name)
			return err == nil
		})
	})
}

// functionOf is a target that nobody runs: what is made of a message stays as it was made.
func functionOf(n string) map[string]any {
	args := map[string]any{"n": n, "text": "${body.text}"}
	return map[string]any{"execution": map[string]any{"executor": "function", "spec": map[string]any{"name": "f", "args": args}}}
}

// apply applies a trigger; changes replace what base says.
func (in *installation) apply(api *client.Client, base, changes map[string]any) {
	in.t.Helper()
	definition := maps.Clone(base)
	maps.Copy(definition, changes)
	text, err := json.Marshal(definition)
	require.NoError(in.t, err)
	_, err = api.ApplyTrigger(in.t.Context(), fmt.Sprint(definition["id"]), text, false)
	require.NoError(in.t, err)
}

// made are the numbers of which a trigger has made executions, in the order in which it has;
// nil while the database does not answer.
func (in *installation) made(trigger string) []int {
	rows, err := in.db.Query(in.t.Context(), `SELECT (request->'spec'->'args'->>'n')::int FROM executions
		WHERE request->'origin'->>'trigger' = $1 ORDER BY requested_at, id`, trigger)
	if err != nil {
		return nil
	}
	defer rows.Close()
	var all []int
	for rows.Next() {
		var n int
		if rows.Scan(&n) != nil {
			return nil
		}
		all = append(all, n)
	}
	if rows.Err() != nil {
		return nil
	}
	return all
}

// once waits until as many numbers are made as there are, and then asserts that each of them
// is, once.
func (in *installation) once(trigger string, many int) {
	in.t.Helper()
	await(in.t, 2*stuckAfter, fmt.Sprintf("all %d of %s are made", many, trigger), func() bool { return len(in.made(trigger)) >= many })
	made := in.made(trigger)
	slices.Sort(made)
	assert.Equal(in.t, numbers(0, many), made, trigger)
}

func numbers(from, to int) []int {
	all := make([]int, 0, to-from)
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// numbered is a topic whose messages are numbered, with the Kafka trigger of the same name
// that reads it.
type numbered struct {
	in   *installation
	id   string
	sent [][]int // the numbers, by partition and offset
	next int     // and the one after the last
}

func (in *installation) numbered(id string, partitions int) *numbered {
	in.t.Helper()
	in.createTopic(id, partitions)
	return &numbered{in: in, id: id, sent: make([][]int, partitions)}
}

// apply applies the trigger, with what is said of it.
func (s *numbered) apply(api *client.Client, kafka, changes map[string]any) {
	s.in.t.Helper()
	source := map[string]any{"topics": []string{s.id}}
	maps.Copy(source, kafka)
	s.in.apply(api, map[string]any{"id": s.id, "kafka": source, "target": functionOf("${body.n}")}, changes)
}

func (s *numbered) group() string { return "millrace-trigger-" + s.id }

// text stands in a message, and nowhere else.
func (s *numbered) text(n int) string { return fmt.Sprintf("text-%d-of-%s", n, s.id) }

// send writes messages to one partition.
func (s *numbered) send(partition, many int) {
	s.in.t.Helper()
	s.write(partition, many, `{"n": %d, "text": %q, "order": {"n": %[1]d}}`)
}

// sendAll writes messages to every partition.
func (s *numbered) sendAll(many int) {
	s.in.t.Helper()
	for partition := range s.sent {
		s.send(partition, many)
	}
}

func (s *numbered) write(partition, many int, form string) {
	t := s.in.t
	t.Helper()
	var records []*kgo.Record
	for range many {
		records = append(records, &kgo.Record{
			Topic: s.id, Partition: int32(partition), Key: fmt.Appendf(nil, "key-%d", s.next), Value: fmt.Appendf(nil, form, s.next, s.text(s.next)),
		})
		s.sent[partition] = append(s.sent[partition], s.next)
		s.next++
	}
	s.in.asked(func(kafka *kgo.Client, _ *kadm.Client) {
		require.NoError(t, kafka.ProduceSync(t.Context(), records...).FirstErr())
	})
}

// committed are the offsets of the group, by partition.
func (s *numbered) committed() []int {
	t := s.in.t
	t.Helper()
	all := make([]int, len(s.sent))
	s.in.asked(func(_ *kgo.Client, admin *kadm.Client) {
		await(t, stuckAfter, "the group's offsets are known", func() bool {
			offsets, err := admin.FetchOffsets(t.Context(), s.group())
			if err != nil || offsets.Error() != nil {
				return false
			}
			for partition := range all {
				at, _ := offsets.Lookup(s.id, int32(partition))
				all[partition] = max(0, int(at.At))
			}
			return true
		})
	})
	return all
}

// stored asserts that what lies before these offsets has become executions, all of it.
func (s *numbered) stored(offsets []int) {
	t := s.in.t
	t.Helper()
	for partition, to := range offsets {
		n := -1
		await(t, startWithin, "the database answers", func() bool {
			n = s.in.count(`SELECT count(DISTINCT request->'origin'->'metadata'->>'offset') FROM executions
				WHERE request->'origin'->>'trigger' = $1 AND (request->'origin'->'metadata'->>'partition')::int = $2
				AND (request->'origin'->'metadata'->>'offset')::bigint < $3`, s.id, partition, to)
			return n >= 0
		})
		assert.Equal(t, to, n, "the group says that partition %d of %s is done up to offset %d", partition, s.id, to)
	}
}

// done waits until everything has been made, and asserts that it was made once, and of each
// partition in its order. Meanwhile the group never says more than is stored.
func (s *numbered) done() {
	t := s.in.t
	t.Helper()
	s.stored(s.committed())
	s.in.once(s.id, s.next)
	s.inOrder()
	want := make([]int, len(s.sent))
	for partition := range s.sent {
		want[partition] = len(s.sent[partition])
	}
	await(t, stuckAfter, "the group has the offsets behind all of "+s.id, func() bool { return slices.Equal(want, s.committed()) })
}

func (s *numbered) inOrder() {
	t := s.in.t
	t.Helper()
	of := map[int]int{}
	for partition, all := range s.sent {
		for _, n := range all {
			of[n] = partition
		}
	}
	order := make([][]int, len(s.sent))
	for _, n := range s.in.made(s.id) {
		order[of[n]] = append(order[of[n]], n)
	}
	assert.Equal(t, s.sent, order, "the order of creation in each partition")
}

// status returns how the trigger is doing, the partitions in their order; false while nobody
// can say.
func (s *numbered) status(api *client.Client) (client.TriggerStatus, bool) {
	status, err := api.TriggerStatus(s.in.t.Context(), s.id)
	return status, err == nil && len(status.Partitions) == len(s.sent)
}

// stands waits until a partition is said to stand, and says why.
func (s *numbered) stands(api *client.Client, partition int, code string) (p client.TriggerPartition) {
	t := s.in.t
	t.Helper()
	await(t, stuckAfter, fmt.Sprintf("partition %d of %s stands with %s", partition, s.id, code), func() bool {
		status, ok := s.status(api)
		if !ok {
			return false
		}
		p = status.Partitions[partition]
		return status.State == "error" && p.State == "error" && p.Cause != nil && p.Cause.Code == code && p.NextTry != nil
	})
	return p
}

// runs waits until no partition stands.
func (s *numbered) runs(api *client.Client) {
	t := s.in.t
	t.Helper()
	await(t, stuckAfter, s.id+" runs again", func() bool {
		status, ok := s.status(api)
		return ok && !slices.ContainsFunc(status.Partitions, func(p client.TriggerPartition) bool { return p.State != "running" })
	})
}

// owner is the name of the process that has the only member of the trigger.
func (s *numbered) owner(api *client.Client) string {
	status, err := api.TriggerStatus(s.in.t.Context(), s.id)
	if err != nil || len(status.Members) != 1 || status.Members[0].State == "unowned" {
		return ""
	}
	name, _, _ := strings.Cut(status.Members[0].Owner, "/")
	return name
}

// webhook posts numbers to the trigger of that name. It does as senders do: what is not
// answered with 2xx is sent again, under the same key.
type webhook struct {
	in   *installation
	id   string
	next int
}

func (in *installation) webhook(api *client.Client, id string, changes map[string]any) *webhook {
	in.t.Helper()
	in.apply(api, map[string]any{
		"id": id, "webhook": map[string]any{"auth": map[string]any{"none": true}}, "target": functionOf("${body.n}"),
	}, changes)
	return &webhook{in: in, id: id}
}

// post sends a number once. The status is 0 where there was no answer.
func (w *webhook) post(p *process, n int) (status int, header http.Header, body string) {
	t := w.in.t
	t.Helper()
	text := fmt.Sprintf(`{"n": %d, "text": "hook-%[1]d"}`, n)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.address("api")+"/hooks/"+w.id, strings.NewReader(text))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprint(n))
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header, string(answer)
}

// accepted sends a number until it is accepted, and returns the id of what was made of it.
func (w *webhook) accepted(p *process, n int) (id string) {
	t := w.in.t
	t.Helper()
	await(t, stuckAfter, fmt.Sprintf("%s accepts %d", w.id, n), func() bool {
		status, _, body := w.post(p, n)
		if status != http.StatusAccepted && status != http.StatusOK {
			return false
		}
		id = idIn(t, body)
		return true
	})
	assert.Equal(t, 1, w.in.count(`SELECT count(*) FROM executions WHERE id::text = $1`, id), "what was acknowledged is stored")
	return id
}

// idIn is the id in the answer of a webhook.
func idIn(t *testing.T, body string) string {
	t.Helper()
	var answer struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	require.NotEmpty(t, answer.ID)
	return answer.ID
}

// send sends further numbers, each until it is accepted.
func (w *webhook) send(p *process, many int) {
	w.in.t.Helper()
	for range many {
		w.accepted(p, w.next)
		w.next++
	}
}

func (w *webhook) done() {
	w.in.t.Helper()
	w.in.once(w.id, w.next)
}

// secondly applies a trigger that fires every second, whatever it has missed.
func (in *installation) secondly(api *client.Client, id string) {
	in.t.Helper()
	in.apply(api, map[string]any{
		"id": id, "schedule": map[string]any{"cron": "* * * * * *", "missed": "all"},
		"target": map[string]any{"execution": map[string]any{
			"executor": "function", "spec": map[string]any{"name": "f", "args": map[string]any{"at": "${meta.scheduled_at}"}},
		}},
	}, nil)
}

// everySecond asserts that each second from the first firing of a schedule to one now has
// started one execution.
func (in *installation) everySecond(id string) {
	t := in.t
	t.Helper()
	const firings = `FROM schedule_firings f JOIN triggers t ON t.uid::text = f.trigger_uid WHERE t.id = $1 `
	last := in.texts(`SELECT coalesce(max(scheduled_at), now())::text FROM schedule_firings`)[0]
	await(t, 2*stuckAfter, "every second has started something", func() bool {
		return in.count(`SELECT count(*) `+firings+`AND f.status <> 'started' AND f.scheduled_at <= $2::text::timestamptz`, id, last) == 0 &&
			in.count(`SELECT count(*) `+firings+`AND f.scheduled_at >= $2::text::timestamptz`, id, last) > 0
	})
	seconds := in.count(`SELECT (1 + extract(epoch FROM $2::text::timestamptz - min(f.scheduled_at)))::int `+firings, id, last)
	made := ` FROM executions WHERE request->'origin'->>'trigger' = $1 AND (request->'spec'->'args'->>'at')::timestamptz <= $2::text::timestamptz`
	assert.Equal(t, seconds, in.count(`SELECT count(*)`+made, id, last), "doubled, or lost")
	assert.Equal(t, seconds, in.count(`SELECT count(DISTINCT (request->'spec'->'args'->>'at')::timestamptz)`+made, id, last), "doubled")
	assert.Positive(t, seconds)
	t.Logf("%s has fired for %d seconds", id, seconds)
}

// restartable is an installation on an embedded broker that can go away and come back.
func restartable(t *testing.T) (in *installation, away, back func()) {
	t.Helper()
	dir := t.TempDir()
	broker := testenv.StartBroker(t, testenv.WithBrokerDir(dir))
	pg := testenv.OwnPostgres(t)
	in = install(t, broker.Addrs(), pg.TCPDSN())
	in.postgres = pg
	return in, func() { require.NoError(t, broker.Close()) }, func() {
		testenv.StartBroker(t, testenv.WithBrokerDir(dir), testenv.WithBrokerConfig(func(c *embedded.BrokerConfig) { c.Listen = in.brokers[0] }))
	}
}
