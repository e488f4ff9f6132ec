package kafkasource_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/handlers/trigger/kafkasource"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/trigger"
)

const (
	patience = time.Minute
	tick     = 5 * time.Millisecond
)

// bench is a broker and a trigger's topic for one test.
type bench struct {
	*testing.T
	addrs []string
	topic string
	group string
	uid   string
	kadm  *kadm.Client
	// made is what all members of the test have made.
	made   *creator
	config kafkasource.Config

	mu sync.Mutex
	// seen are the last reports of the partitions, as the supervisor keeps them.
	seen map[string]trigger.PartitionReport
}

func (b *bench) note(r trigger.MemberReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range r.Partitions {
		was := b.seen[partitionName(p.Topic, p.Partition)]
		if p.Committed < 0 && (p.TopicID == "" || p.TopicID == was.TopicID) {
			p.Committed, p.TopicID = was.Committed, was.TopicID // what was known is kept
		}
		b.seen[partitionName(p.Topic, p.Partition)] = p
	}
}

func (b *bench) positions(context.Context, string) ([]trigger.PartitionReport, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.seen)), nil
}

func newBench(t *testing.T, addrs []string) *bench {
	t.Helper()
	id := uuid.NewString()
	b := &bench{T: t, addrs: addrs, topic: "orders-" + id, group: "g-" + id, uid: id, made: newCreator(), seen: make(map[string]trigger.PartitionReport)}
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b.kadm = kadm.NewClient(client)
	b.config = kafkasource.Config{
		Installation: kafka.Config{Brokers: addrs, MetadataMaxAge: 100 * time.Millisecond},
		Creator:      b.made, Secrets: noSecrets{}, Positions: b.positions,
		BackoffInitial: 20 * time.Millisecond, BackoffMax: 50 * time.Millisecond, SurveyInterval: 100 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 50 * time.Millisecond,
	}
	if os.Getenv("MILLRACE_TEST_LOG") != "" {
		b.config.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return b
}

// create makes a topic, that of the bench if none is named.
func (b *bench) create(partitions int32, names ...string) {
	b.Helper()
	if len(names) == 0 {
		names = []string{b.topic}
	}
	for _, name := range names {
		// A topic of the same name may still be on its way out.
		require.EventuallyWithT(b, func(c *assert.CollectT) {
			_, err := b.kadm.CreateTopic(b.Context(), partitions, -1, nil, name)
			require.NoError(c, err)
		}, patience, 50*time.Millisecond)
	}
}

func (b *bench) drop(names ...string) {
	b.Helper()
	answers, err := b.kadm.DeleteTopics(b.Context(), names...)
	require.NoError(b, err)
	require.NoError(b, answers.Error())
}

// publish writes JSON objects to a partition of the bench's topic; each value is that of
// the member "n".
func (b *bench) publish(partition int32, values ...string) {
	b.Helper()
	b.publishTo(b.topic, partition, values...)
}

func (b *bench) publishTo(topic string, partition int32, values ...string) {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(b, err)
	defer client.Close()
	recs := make([]*kgo.Record, len(values))
	for i, value := range values {
		recs[i] = &kgo.Record{Topic: topic, Partition: partition, Key: []byte("key of " + value), Value: []byte(`{"n":"` + value + `"}`)}
	}
	require.NoError(b, client.ProduceSync(b.Context(), recs...).FirstErr())
}

// committed is the group's offset in a partition, -1 for none.
func (b *bench) committed(topic string, partition int32) int64 {
	offsets, err := b.kadm.FetchOffsets(b.Context(), b.group)
	if err != nil {
		return -1 // there is no such group
	}
	if o, ok := offsets.Lookup(topic, partition); ok && o.Err == nil {
		return o.At
	}
	return -1
}

// compile makes a trigger of the bench's topic, after change.
func (b *bench) compile(change func(*trigger.Kafka)) *trigger.Compiled {
	b.Helper()
	d := trigger.Definition{
		ID: "orders", Tenant: "acme", User: "ann", Type: trigger.TypeKafka,
		Kafka:  &trigger.Kafka{Topics: []string{b.topic}, Group: b.group},
		Target: trigger.Target{Execution: &trigger.ExecutionTemplate{Executor: "function", Spec: json.RawMessage(`{"name":"x"}`)}},
	}
	if change != nil {
		change(d.Kafka)
	}
	t, faults := trigger.Compile(trigger.Stored{Definition: d, UID: b.uid, Revision: 1}, trigger.Defaults{
		Brokers: b.addrs, Secrets: trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_"},
	})
	require.NoError(b, trigger.Refused(faults))
	return t
}

// running is a member that runs.
type running struct {
	*bench
	end  context.CancelFunc
	done chan error

	mu   sync.Mutex
	last trigger.MemberReport
}

// run starts a member of a trigger; it ends with the test.
func (b *bench) run(t *trigger.Compiled, number int) *running {
	return b.runWith(b.config, t, number)
}

func (b *bench) runWith(cfg kafkasource.Config, t *trigger.Compiled, number int) *running {
	b.Helper()
	ctx, end := context.WithCancel(context.Background())
	r := &running{bench: b, end: end, done: make(chan error, 1)}
	source := kafkasource.New(cfg)
	go func() {
		r.done <- source.Run(ctx, t, number, func(report trigger.MemberReport) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last = report
			b.note(report)
		})
	}()
	b.Cleanup(r.stop)
	return r
}

// stop ends the member as its supervisor would.
func (r *running) stop() {
	r.end()
	select {
	case err := <-r.done:
		require.NoError(r, err)
		r.done <- nil // for another stop
	case <-time.After(patience):
		require.FailNow(r, "the member does not end")
	}
}

func (r *running) report() trigger.MemberReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// until waits for a report that is as it should be.
func (r *running) until(what string, as func(trigger.MemberReport) bool) trigger.MemberReport {
	r.Helper()
	var found trigger.MemberReport
	if !eventually(func() bool { found = r.report(); return as(found) }) {
		last := r.report()
		last.Effective = nil
		text, _ := json.MarshalIndent(last, "", " ")
		require.FailNow(r, "no such report", "%s\n%s", what, text)
	}
	return found
}

func eventually(condition func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if condition() {
			return true
		}
		<-time.After(tick)
	}
	return false
}

// partitionIs waits for a state of a partition, and a code of its cause.
func (r *running) partitionIs(topic string, partition int32, state trigger.State, code string) trigger.PartitionReport {
	r.Helper()
	report := r.until(fmt.Sprintf("%s/%d is %s %s", topic, partition, state, code), func(m trigger.MemberReport) bool {
		p, ok := partitionOf(m, topic, partition)
		return ok && p.State == state && codeOf(p.Cause) == code
	})
	p, _ := partitionOf(report, topic, partition)
	return p
}

func partitionOf(m trigger.MemberReport, topic string, partition int32) (trigger.PartitionReport, bool) {
	i := slices.IndexFunc(m.Partitions, func(p trigger.PartitionReport) bool { return p.Topic == topic && p.Partition == partition })
	if i < 0 {
		return trigger.PartitionReport{}, false
	}
	return m.Partitions[i], true
}

// memberIs waits for a state of the member, and a code of its cause.
func (r *running) memberIs(state trigger.State, code string) trigger.MemberReport {
	r.Helper()
	return r.until(fmt.Sprintf("the member is %s %s", state, code), func(m trigger.MemberReport) bool {
		return m.State == state && codeOf(m.Cause) == code
	})
}

func codeOf(c *trigger.Cause) string {
	if c == nil {
		return ""
	}
	return c.Code
}

// committedIs waits for the group's offset.
func (b *bench) committedIs(partition int32, want int64) {
	b.Helper()
	require.Eventually(b, func() bool { return b.committed(b.topic, partition) == want }, patience, 20*time.Millisecond,
		"partition %d should be committed up to %d", partition, want)
}

// noSecrets is a Secrets that has none.
type noSecrets struct{}

func (noSecrets) Resolve(ref trigger.SecretRef) (secret.Secret, error) {
	return secret.Secret{}, errors.New("no such secret: " + ref.Env)
}

// creator makes targets as package ingest does: durable at once, and known again by their
// place. It is what a test looks at.
type creator struct {
	mu    sync.Mutex
	known map[string]bool
	// made are the values in the order in which they were made, by topic and partition.
	made map[string][]string
	// all are the messages of made ones, sizes how many came together.
	all   []ingest.Message
	sizes []int
	// fault is asked before each message is made.
	fault func(value string, m ingest.Message) error
	calls map[string]int
}

func newCreator() *creator {
	return &creator{known: make(map[string]bool), made: make(map[string][]string), calls: make(map[string]int)}
}

func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("%s/%d", topic, partition)
}

func valueOf(m ingest.Message) string {
	var body struct{ N string }
	_ = json.Unmarshal(m.Body, &body)
	return body.N
}

func (c *creator) Create(ctx context.Context, _ *trigger.Compiled, messages []ingest.Message) ([]ingest.Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, len(messages))
	var outcomes []ingest.Outcome
	for i, m := range messages {
		if ctx.Err() != nil {
			return outcomes, ctx.Err()
		}
		p := m.Place
		at := partitionName(p.Topic, p.Partition)
		c.calls[at]++
		if c.fault != nil {
			if err := c.fault(valueOf(m), m); err != nil {
				if blocked, ok := errors.AsType[*ingest.BlockedError](err); ok {
					blocked.Index = i
				}
				return outcomes, err
			}
		}
		place := fmt.Sprintf("%s/%x/%d/%d", p.Cluster, p.TopicID, p.Partition, p.Offset)
		if c.known[place] {
			outcomes = append(outcomes, ingest.Outcome{Status: ingest.Duplicate})
			continue
		}
		c.known[place] = true
		c.made[at] = append(c.made[at], cmp.Or(valueOf(m), string(m.Body)))
		c.all = append(c.all, m)
		outcomes = append(outcomes, ingest.Outcome{Status: ingest.Created, Kind: trigger.KindExecution, ID: place})
	}
	return outcomes, nil
}

// failWith has every message that matches fail; a nil error has all succeed again.
func (c *creator) failWith(fault func(value string, m ingest.Message) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

func (c *creator) of(topic string, partition int32) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made[partitionName(topic, partition)])
}

func (c *creator) callsOf(topic string, partition int32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[partitionName(topic, partition)]
}

// has waits until exactly these were made of a partition, in this order.
func (b *bench) has(topic string, partition int32, want ...string) {
	b.Helper()
	if !eventually(func() bool { return len(b.made.of(topic, partition)) >= len(want) }) {
		require.Equal(b, want, b.made.of(topic, partition))
	}
	require.Equal(b, want, b.made.of(topic, partition))
}

// values are n of them with a prefix.
func values(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}

// blockedBy is what stands in the way of values with a prefix.
func blockedBy(code, prefix string) func(string, ingest.Message) error {
	return func(value string, _ ingest.Message) error {
		if !strings.HasPrefix(value, prefix) {
			return nil
		}
		return &ingest.BlockedError{Cause: trigger.Cause{Code: code, Message: "no more than 3 may be open", Hint: "wait"}}
	}
}

// stranger joins the bench's group with the protocol of other software, until the returned
// function is called.
func (b *bench) stranger() (leave func()) {
	b.Helper()
	joined := make(chan struct{})
	var once sync.Once
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.addrs...), kgo.ConsumerGroup(b.group), kgo.ConsumeTopics(b.topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { once.Do(func() { close(joined) }) }),
	)
	require.NoError(b, err)
	var leaving sync.Once
	leave = func() { leaving.Do(client.Close) }
	b.Cleanup(leave)
	select {
	case <-joined:
	case <-time.After(patience):
		require.FailNow(b, "the stranger does not join")
	}
	return leave
}
