package sse

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// kafkaLog makes a topic on a broker of the test's own.
func kafkaLog(t *testing.T, partitions int32) (*KafkaLog, *kafka.Publisher) {
	t.Helper()
	return kafkaLogOn(t, kafka.Config{Brokers: testenv.Broker(t), FetchMaxWait: 20 * time.Millisecond}, partitions)
}

func kafkaLogOn(t *testing.T, config kafka.Config, partitions int32) (*KafkaLog, *kafka.Publisher) {
	t.Helper()
	admin, err := kafka.NewAdmin(config)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	reports, err := admin.EnsureTopics(t.Context(), []kafka.TopicConfig{
		{Name: "execution_events", Partitions: partitions, ReplicationFactor: 1}})
	require.NoError(t, err)
	require.NoError(t, reports[0].Err)
	publisher, err := kafka.NewPublisher(config, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return NewKafkaLog(config, admin, "execution_events"), publisher
}

func TestAClientThatComesBackMissesNothingAndGetsNothingTwice(t *testing.T) {
	t.Parallel()
	log, publisher := kafkaLog(t, 4)
	b := newBench(t, log, func(h *Hub, _ *Config) { h.linger = time.Millisecond })
	const executions, each = 20, 50

	s := b.connect("/events", "")
	s.skipPing()
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for sequence := int64(1); sequence <= each; sequence++ {
			var batch []topics.Record
			for e := range executions {
				batch = append(batch, output(t, fmt.Sprintf("e%02d", e), sequence))
			}
			for _, err := range publisher.PublishRecords(t.Context(), batch) {
				assert.NoError(t, err)
			}
		}
	})
	seen := map[string]int{}
	last := map[string]string{}
	for reconnects := 0; len(seen) < executions*each; reconnects++ {
		for range 1 + rand.IntN(80) {
			f := s.must()
			require.Contains(t, f.event, "millrace.", "no notice is due")
			key := f.key(t)
			seen[key]++
			require.Equal(t, 1, seen[key], "%s came twice, after %d reconnects", key, reconnects)
			id, sequence, _ := strings.Cut(key, "/")
			if before := last[id]; before != "" {
				require.Equal(t, fmt.Sprint(atoi(t, before)+1), sequence, "order of %s", id)
			}
			last[id] = sequence
			if len(seen) == executions*each {
				break
			}
		}
		s.close()
		s = b.connect("/events", s.lastID)
	}
	publishing.Wait()
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

func TestAKafkaTopicThatLostTheCursorIsAReset(t *testing.T) {
	t.Parallel()
	log, publisher := kafkaLog(t, 2)
	b := newBench(t, log, nil)
	s := b.connect("/events", b.cursor(500, 0))
	f := s.must()
	assert.Equal(t, EventReset, f.event)
	assert.Contains(t, f.data, `"gap"`)
	for _, err := range publisher.PublishRecords(t.Context(), []topics.Record{output(t, "e1", 1)}) {
		require.NoError(t, err)
	}
	assert.Equal(t, "e1/1", s.must().key(t))
	_, err := log.Open(t.Context(), Position{500, 0})
	require.ErrorIs(t, err, errGap)
}

func TestEventsBehindTheRetentionAreAReset(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(2)
	log.publish(0, output(t, "e1", 1), output(t, "e1", 2), output(t, "e1", 3))
	log.start[0] = 2
	b := newBench(t, log, nil)
	s := b.connect("/events", b.cursor(0, 0))
	assert.Equal(t, EventReset, s.must().event)
	assert.Equal(t, "e1/3", s.must().key(t), "and it goes on with what there is")
}

func TestPartitionsThatWereAddedAreReadFromTheirBeginning(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(2)
	log.publish(0, output(t, "e1", 1))
	log.publish(1, output(t, "e2", 1))
	b := newBench(t, log, nil)
	s := b.connect("/events", b.cursor(1))
	assert.Equal(t, "e2/1", s.must().key(t))
}

func TestFiltersAndTheCursorOfPings(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, func(_ *Hub, c *Config) { c.Ping = time.Millisecond })
	queued := topics.ExecutionQueued{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Priority: 3}
	s := b.connect("/events?id=e1&type="+queued.EventType(), "")
	s.skipPing()
	other := queued
	other.ExecutionID = "e2"
	log.publish(0, output(t, "e1", 1), event(t, "e2", 1, other), event(t, "e1", 2, queued), output(t, "e1", 3))
	assert.Equal(t, "e1/2", s.must().key(t))
	// The ping says that the events which do not match lie behind too.
	for s.lastID != b.cursor(4) {
		_, err := s.next()
		require.NoError(t, err)
	}
}

func TestAClientThatDoesNotKeepUpIsToldAndLosesNothing(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, func(h *Hub, _ *Config) { h.buffer = 4 })
	blocked := &blockingWriter{header: http.Header{}, entered: make(chan struct{}, 100), proceed: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(t.Context())
		assert.NoError(t, b.streams.Events(blocked, r, topics.ExecutionEvents, Filter{}))
	}()
	<-blocked.entered // the first ping is being written, and does not get through
	log.publish(0, life(t, "e1", 20)...)
	require.Eventually(t, func() bool {
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		return len(b.hub.subscribers) == 0
	}, patience, time.Millisecond)
	close(blocked.proceed)
	<-done
	text := blocked.text.String()
	assert.Contains(t, text, "event: dropped\ndata: {\"reason\":\"slow_client\"")
	require.Equal(t, 4, strings.Count(text, "event: millrace."), "what was in its buffer still reached it")

	ids := strings.Split(text, "id: ")
	s := b.connect("/events", strings.SplitN(ids[len(ids)-1], "\n", 2)[0])
	for i := 5; i <= 20; i++ {
		assert.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
}

// blockingWriter is a client that takes nothing until it may proceed.
type blockingWriter struct {
	header  http.Header
	entered chan struct{}
	proceed chan struct{}
	text    strings.Builder
}

func (w *blockingWriter) Header() http.Header { return w.header }
func (w *blockingWriter) WriteHeader(int)     {}
func (w *blockingWriter) Flush()              {}
func (w *blockingWriter) Write(p []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.proceed
	return w.text.Write(p)
}

func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, func(_ *Hub, c *Config) { c.Max = 2 })
	s := b.connect("/events", "")
	s.skipPing()
	other := b.connect("/executions/e1", "")
	other.skipPing()

	resp, err := b.client.Get(b.url + "/events")
	require.NoError(t, err)
	body, _ := io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(body), ErrTooMany.Error())

	b.streams.Close()
	for _, client := range []*stream{s, other} {
		assert.Equal(t, EventShutdown, client.must().event)
		_, err := client.next()
		assert.ErrorIs(t, err, io.EOF)
	}
	require.ErrorIs(t, b.streams.Events(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), topics.ExecutionEvents, Filter{}), ErrClosing)
}

func TestTheTopicIsReadOnlyWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, func(h *Hub, _ *Config) { h.linger = time.Millisecond })
	assert.Zero(t, log.open())
	s := b.connect("/events", "")
	s.skipPing()
	assert.Equal(t, 1, log.open())
	s.close()
	require.Eventually(t, func() bool { return log.open() == 0 }, patience, time.Millisecond)
	log.publish(0, output(t, "e1", 1))
	again := b.connect("/events", s.lastID)
	assert.Equal(t, "e1/1", again.must().key(t))
}

func TestABrokerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	log.openErr = io.ErrUnexpectedEOF
	b := newBench(t, log, nil)
	ctx, cancel := context.WithCancel(t.Context())
	attached := make(chan error, 1)
	go func() {
		sub, err := b.hub.attach(ctx, Filter{})
		if err == nil {
			b.hub.detach(sub)
		}
		attached <- err
	}()
	require.Eventually(t, func() bool { wanted, _ := b.hub.wanted(); return wanted }, patience, time.Millisecond)
	log.mu.Lock()
	log.openErr = nil
	log.mu.Unlock()
	require.NoError(t, <-attached)
	cancel()
}

func FuzzCursors(f *testing.F) {
	f.Add(cursor{1, 2, Position{1, 2, 3}}.text())
	f.Add(sequenceText(7))
	f.Add("")
	f.Add("Af____________AQ")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parseCursor(text); err == nil {
			again, err := parseCursor(p.text())
			require.NoError(t, err)
			require.Equal(t, p, again)
		} else {
			require.ErrorIs(t, err, ErrCursor)
		}
		if n, err := parseSequence(text); err == nil {
			again, err := parseSequence(sequenceText(n))
			require.NoError(t, err)
			require.Equal(t, n, again)
		} else {
			require.ErrorIs(t, err, ErrCursor)
		}
	})
}
