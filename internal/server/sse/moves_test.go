package sse

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// A client goes from one process to another and back, while the relay repeats what it
// has published: whether the processes remember what it missed or it has to read the
// topic, every event comes once, and those of one execution in order.
func TestAClientThatMovesBetweenProcessesGetsEachEventOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Hub, *Config){
		"they remember":  nil,
		"they forget":    func(h *Hub, _ *Config) { h.linger, h.span = time.Millisecond, 600 },
		"one is slow":    func(h *Hub, _ *Config) { h.buffer = 8 },
		"few are let in": func(h *Hub, _ *Config) { h.reading = make(chan struct{}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, publisher := kafkaLog(t, 3)
			both := []*bench{newBench(t, log, change), newBench(t, log, change)}
			const executions, each = 12, 40
			s := both[0].connect("/events", "")
			s.skipPing()
			var publishing sync.WaitGroup
			publishing.Go(func() {
				var before []topics.Record
				for sequence := int64(1); sequence <= each; sequence++ {
					var batch []topics.Record
					for e := range executions {
						batch = append(batch, output(t, fmt.Sprintf("e%02d", e), sequence))
					}
					// Every third batch is published again, together with the next one.
					for _, err := range publisher.PublishRecords(t.Context(), append(before, batch...)) {
						assert.NoError(t, err)
					}
					if before = nil; sequence%3 == 0 {
						before = batch
					}
				}
			})
			got := newReceipts(t)
			for n := 0; got.count() < executions*each; n++ {
				for range 1 + rand.IntN(60) {
					f, err := s.next()
					if err != nil || f.event == EventDropped {
						break // of a small buffer
					}
					if f.comment {
						continue
					}
					got.note(f)
					if got.count() == executions*each {
						break
					}
				}
				s.close()
				s = both[n%2].connect("/events", s.lastID)
			}
			publishing.Wait()
		})
	}
}

// receipts are the events that a client got.
type receipts struct {
	t    *testing.T
	seen map[string]bool
	last map[string]int
}

func newReceipts(t *testing.T) *receipts {
	return &receipts{t: t, seen: map[string]bool{}, last: map[string]int{}}
}

func (r *receipts) count() int { return len(r.seen) }

// note takes an event, which must be the next one of its execution.
func (r *receipts) note(f frame) {
	r.t.Helper()
	require.Contains(r.t, f.event, "millrace.", "no notice is due: %s", f.data)
	key := f.key(r.t)
	require.False(r.t, r.seen[key], "%s came twice", key)
	r.seen[key] = true
	id, sequence, _ := strings.Cut(key, "/")
	require.Equal(r.t, r.last[id]+1, atoi(r.t, sequence), "order of %s", id)
	r.last[id]++
}

// What lies before the cursor is known to a process that has just begun to read.
func TestARepetitionIsKnownToAProcessThatComesLater(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	first := newBench(t, log, nil)
	s := first.connect("/events", "")
	s.skipPing()
	events := life(t, "e1", 6)
	log.publish(0, events[:3]...)
	for i := 1; i <= 3; i++ {
		require.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
	log.publish(0, events[1], events[2], events[3], events[2])

	again := newBench(t, log, nil).connect("/events", s.lastID)
	assert.Equal(t, "e1/4", again.must().key(t), "the process remembers what it missed")
	far := newBench(t, log, func(h *Hub, _ *Config) { h.span = 6 }).connect("/events", s.lastID)
	assert.Equal(t, "e1/4", far.must().key(t))
	log.publish(0, events[0], events[4])
	for _, client := range []*stream{s, again} {
		if client == s {
			assert.Equal(t, "e1/4", client.must().key(t))
		}
		assert.Equal(t, "e1/5", client.must().key(t))
	}
}

func TestWhatIsForSomeConsumersOnlyIsNotShown(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	s := newBench(t, log, nil).connect("/events", "")
	s.skipPing()
	events := life(t, "e1", 4)
	for i, header := range []string{middleware.HeaderReplaySession, middleware.HeaderTarget} {
		events[i].Headers = append(events[i].Headers, topics.Header{Key: header, Value: []byte("x")})
	}
	log.publish(0, events...)
	assert.Equal(t, "e1/3", s.must().key(t))
}

// A thousand clients come back to another process at one moment: it needs nothing from
// the topic but what it reads anyway.
func TestAThousandClients(t *testing.T) {
	t.Parallel()
	const clients, events = 1000, 20
	log := newMemoryLog(2)
	b := newBench(t, log, nil)
	streams := make([]*stream, clients)
	everywhere := func(f func(i int)) {
		var wg sync.WaitGroup
		for worker := range 50 {
			wg.Go(func() {
				for i := worker; i < clients; i += 50 {
					f(i)
				}
			})
		}
		wg.Wait()
	}
	// Every tenth wants everything, the others one execution each.
	path := func(i int) string {
		if i%10 == 0 {
			return "/events"
		}
		return fmt.Sprintf("/events?id=e%d", i%7)
	}
	wants := func(i, e int) bool { return i%10 == 0 || i%7 == e%7 }
	read := func(i, first int) {
		last := map[int]string{}
		for e := first; e < first+events; e++ {
			if wants(i, e) {
				f, err := streams[i].next()
				for err == nil && f.comment {
					f, err = streams[i].next()
				}
				if assert.NoError(t, err) {
					key := f.key(t)
					assert.Less(t, last[len(key)%2], key)
				}
			}
		}
	}
	publish := func(first int) {
		for e := first; e < first+events; e++ {
			log.publish(e%2, output(t, fmt.Sprintf("e%d", e%7), int64(e+1)))
		}
	}
	everywhere(func(i int) {
		streams[i] = b.connect(path(i), "")
		streams[i].skipPing()
	})
	publish(0)
	everywhere(func(i int) { read(i, 0) })

	everywhere(func(i int) { streams[i].close() })
	publish(events)
	next := newBench(t, log, nil)
	opened := log.calls()
	everywhere(func(i int) {
		streams[i] = next.connect(path(i), streams[i].lastID)
		read(i, events)
	})
	assert.Equal(t, opened+1, log.calls(), "the hub reads the topic, no client does")
}

// Filters decide what comes, not what the cursor means.
func TestAFilterMayChangeOnTheWay(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	s := b.connect("/events?id=e1&id=e2", "")
	s.skipPing()
	log.publish(0, output(t, "e1", 1), output(t, "e3", 1), output(t, "e2", 1), output(t, "e3", 2))
	assert.Equal(t, "e1/1", s.must().key(t))
	s.close()
	s = b.connect("/events?id=e3", s.lastID)
	assert.Equal(t, "e3/1", s.must().key(t))
	s.close()
	s = b.connect("/events?id=e2&id=e3", s.lastID)
	assert.Equal(t, "e2/1", s.must().key(t))
	assert.Equal(t, "e3/2", s.must().key(t))
}

func TestFilters(t *testing.T) {
	t.Parallel()
	env := func(kind, subject, tenant, user, data string) *item {
		e := topics.Envelope{Type: kind, Subject: subject, Time: time.Now(), Data: []byte(data)}
		topics.WithOwner(tenant, user)(&e)
		return &item{envelope: e}
	}
	started := env("millrace.execution.started.v1", "e1", "acme", "ada", `{}`)
	nobodys := env("millrace.execution.started.v1", "e2", "", "", `{}`)
	flat := env("io.serverlessworkflow.workflow.started.v1", "", "", "", `{"instanceId":"i1","workflowName":"greet"}`)
	workflow := env("io.serverlessworkflow.workflow.started.v1", "", "", "", `{"name":"i1","definition":{"name":"greet"}}`)
	task := env("io.serverlessworkflow.task.started.v1", "", "", "", `{"workflow":"i1","task":"do/0/greet"}`)
	odd := env("io.serverlessworkflow.task.started.v1", "", "", "", `{"workflow":{"name":"i1"}}`)
	broken := env("io.serverlessworkflow.workflow.started.v1", "", "", "", `[`)
	all := []*item{started, nobodys, flat, workflow, task, odd, broken}
	for name, c := range map[string]struct {
		filter Filter
		want   []*item
	}{
		"everything":      {Filter{}, all},
		"executions":      {Filter{Subjects: []string{"e1", "e2"}}, []*item{started, nobodys}},
		"an instance":     {Filter{Subjects: []string{"i1"}}, []*item{flat, workflow, task}},
		"users":           {Filter{Users: []string{"bob", "ada"}}, []*item{started}},
		"nobody":          {Filter{Users: []string{""}}, nil},
		"a tenant":        {Filter{Tenant: "acme"}, []*item{started}},
		"another tenant":  {Filter{Tenant: "x", Users: []string{"ada"}}, nil},
		"a type":          {Filter{Types: []string{"x", "millrace.execution.started.v1"}}, []*item{started, nobodys}},
		"a type's prefix": {Filter{Types: []string{"io.serverlessworkflow.task.*"}}, []*item{task, odd}},
		"all of it": {Filter{Types: []string{"*"}, Users: []string{"ada"}, Subjects: []string{"e1"}, Tenant: "acme"},
			[]*item{started}},
	} {
		var got []*item
		for _, it := range all {
			if c.filter.match(it) {
				got = append(got, it)
			}
		}
		assert.Equal(t, c.want, got, name)
	}
}

func TestATopicThatWasMadeAnewIsAResetAndAllNew(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	s := b.connect("/events", "")
	s.skipPing()
	log.publish(0, output(t, "old", 1), output(t, "old", 2))
	s.must()
	last := s.must().id
	log.replace()
	log.publish(0, life(t, "e1", 3)...)
	f := s.must()
	assert.Equal(t, EventReset, f.event)
	_, err := s.next()
	require.ErrorIs(t, err, io.EOF)

	s = b.connect("/events", last)
	assert.Equal(t, EventReset, s.must().event)
	for i := 1; i <= 3; i++ {
		assert.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
}

func TestACursorOfAnotherTopicIsRefused(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	other := cursor{topic: tag([]byte(topics.FlowLifecycle)), at: Position{0}}.text()
	for _, id := range []string{other, sequenceText(3), "x"} {
		resp, err := b.client.Get(b.url + "/events?last_event_id=" + id)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Contains(t, string(body), ErrCursor.Error())
	}
}

func TestPartitionsThatAreAddedAreSeenByThoseWhoListen(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	s := newBench(t, log, func(h *Hub, _ *Config) { h.look = time.Millisecond }).connect("/events", "")
	s.skipPing()
	log.publish(0, output(t, "e1", 1))
	assert.Equal(t, "e1/1", s.must().key(t))
	log.grow()
	log.publish(1, output(t, "e2", 1))
	assert.Equal(t, "e2/1", s.must().key(t))
	log.publish(0, output(t, "e1", 2))
	assert.Equal(t, "e1/2", s.must().key(t))
}

// The end of a transaction has an offset and is no record: a client that comes back
// does not wait for it.
func TestTheEndOfTransactionsIsPassed(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(2)
	log.publish(0, output(t, "e1", 1), output(t, "e1", 2))
	log.mark(0)
	log.mark(1)
	b := newBench(t, log, func(h *Hub, _ *Config) { h.span = 0 }) // it remembers nothing
	s := b.connect("/events", b.cursor(1, 0))
	assert.Equal(t, "e1/2", s.must().key(t))
	// It has joined the hub, so it does not read by itself any more.
	require.Eventually(t, func() bool { return log.open() == 1 }, patience, time.Millisecond)
	log.publish(1, output(t, "e2", 1))
	assert.Equal(t, "e2/1", s.must().key(t))
}

// Few clients read the topic at a time; those that wait for it are kept alive.
func TestClientsThatWaitForTheTopicArePinged(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	log.publish(0, life(t, "e1", 3)...)
	b := newBench(t, log, func(h *Hub, c *Config) {
		h.span, h.reading, c.Ping = 0, make(chan struct{}, 1), time.Millisecond
	})
	b.hub.reading <- struct{}{}
	s := b.connect("/events", b.cursor(0))
	for range 5 {
		f, err := s.next()
		require.NoError(t, err)
		require.True(t, f.comment)
		require.Equal(t, b.cursor(0), s.lastID)
	}
	<-b.hub.reading
	assert.Equal(t, "e1/1", s.must().key(t))
}

// A client that takes nothing at all is let go of when the connection is full.
func TestAClientThatTakesNothingIsLetGoOf(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, func(_ *Hub, c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	s := b.connect("/events", "")
	s.skipPing()
	sequence := int64(0)
	require.Eventually(t, func() bool {
		for range 100 {
			sequence++
			log.publish(0, event(t, "e1", sequence, topics.ExecutionOutput{
				ExecutionID: "e1", Attempt: 1, Stream: "stdout", Data: make([]byte, 10_000), Size: 10_000}))
		}
		b.streams.mu.Lock()
		defer b.streams.mu.Unlock()
		return b.streams.open == 0
	}, patience, time.Millisecond)
}

// The broker goes away and comes back: the stream goes on where it was.
func TestABrokerThatIsRestartedCostsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker := testenv.StartBroker(t, testenv.WithBrokerDir(dir))
	config := kafka.Config{Brokers: broker.Addrs(), FetchMaxWait: 20 * time.Millisecond}
	log, publisher := kafkaLogOn(t, config, 2)
	s := newBench(t, log, nil).connect("/events", "")
	s.skipPing()
	got := newReceipts(t)
	for round := range 3 {
		for i := range 10 {
			for _, err := range publisher.PublishRecords(t.Context(), []topics.Record{output(t, fmt.Sprint("e", i), int64(round+1))}) {
				require.NoError(t, err)
			}
		}
		for range 10 {
			got.note(s.must())
		}
		if round < 2 {
			require.NoError(t, broker.Close())
			broker = testenv.StartBroker(t, testenv.WithBrokerDir(dir), testenv.WithBrokerConfig(func(c *embedded.BrokerConfig) {
				c.Listen = config.Brokers[0]
			}))
		}
	}
}

// The same on Apache Kafka, whose process is killed: what was acknowledged is there
// when it is back, and comes once.
func TestAKafkaThatIsKilledCostsNothing(t *testing.T) {
	realkafka.Require(t)
	cluster, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: testenv.DataDir(t), Progress: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	log, publisher := kafkaLogOn(t, kafka.Config{Brokers: cluster.Addrs(), FetchMaxWait: 20 * time.Millisecond}, 3)
	both := []*bench{newBench(t, log, nil), newBench(t, log, nil)}
	stays, moves := both[0].connect("/events", ""), both[0].connect("/events", "")
	stays.skipPing()
	moves.skipPing()
	gotByOne, gotByOther := newReceipts(t), newReceipts(t)
	const executions = 10
	for round := range 3 {
		var batch []topics.Record
		for i := range executions {
			batch = append(batch, output(t, fmt.Sprint("e", i), int64(round+1)))
		}
		for _, err := range publisher.PublishRecords(t.Context(), batch) {
			require.NoError(t, err)
		}
		for range executions {
			gotByOne.note(stays.must())
			gotByOther.note(moves.must())
		}
		if round < 2 {
			require.NoError(t, cluster.Kill(0))
			require.NoError(t, cluster.Restart(t.Context(), 0))
		}
		moves.close()
		moves = both[(round+1)%2].connect("/events", moves.lastID)
	}
}

// What goes over the wire is what browsers and curl understand.
func TestTheWire(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	resp, err := b.client.Get(b.url + "/events")
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewReader(resp.Body)
	var text strings.Builder
	var published atomic.Bool
	for strings.Count(text.String(), "\n\n") < 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		text.WriteString(line)
		if strings.Contains(text.String(), ": ping") && !published.Swap(true) {
			log.publish(0, output(t, "e1", 1))
		}
	}
	assert.Regexp(t, `^retry: 3000\n\n: ping\nid: \S+\n\nid: \S+\nevent: millrace\.execution\.output\.v1\ndata: \{.*"subject":"e1".*\}\n\n$`, text.String())
}
