package sse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// event makes the record of an event; publish gives it its place.
func event(t testing.TB, id string, sequence int64, e topics.Event) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(e, topics.WithSequence(sequence), topics.WithID(fmt.Sprintf("%s-%d", id, sequence)))
	require.NoError(t, err)
	return env.Record("execution_events", []byte(id))
}

func output(t testing.TB, id string, sequence int64) topics.Record {
	return event(t, id, sequence, topics.ExecutionOutput{ExecutionID: id, Attempt: 1, Stream: "stdout", Data: []byte("x"), Size: 1})
}

// life returns the n events of an execution, of which the last one ends it.
func life(t testing.TB, id string, n int64) []topics.Record {
	var records []topics.Record
	for i := int64(1); i < n; i++ {
		records = append(records, output(t, id, i))
	}
	now := time.Now()
	return append(records, event(t, id, n, topics.ExecutionCompleted{
		ExecutionID: id, Attempt: 1, Worker: "w", StartedAt: now, FinishedAt: now}))
}

// memoryLog is a topic in memory.
type memoryLog struct {
	mu         sync.Mutex
	partitions [][]topics.Record
	start      Position
	changed    chan struct{}
	tails      int
	// looks and opened count calls.
	looks, opened int
	openErr       error
	id            [16]byte
}

func newMemoryLog(partitions int) *memoryLog {
	return &memoryLog{partitions: make([][]topics.Record, partitions), start: make(Position, partitions), changed: make(chan struct{})}
}

func (l *memoryLog) publish(partition int, records ...topics.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		r.Partition, r.Offset = int32(partition), int64(len(l.partitions[partition]))
		l.partitions[partition] = append(l.partitions[partition], r)
	}
	l.wake()
}

// mark adds what has an offset and is no record, as the end of a transaction.
func (l *memoryLog) mark(partition int) { l.publish(partition, topics.Record{}) }

// grow adds a partition.
func (l *memoryLog) grow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partitions, l.start = append(l.partitions, nil), append(l.start, 0)
	l.wake()
}

// replace deletes the topic and makes it anew.
func (l *memoryLog) replace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id[0]++
	l.partitions, l.start = make([][]topics.Record, len(l.partitions)), make(Position, len(l.start))
	l.wake()
}

// calls returns how often the log was opened so far.
func (l *memoryLog) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened
}

func (l *memoryLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *memoryLog) end() Position {
	p := make(Position, len(l.partitions))
	for i := range p {
		p[i] = int64(len(l.partitions[i]))
	}
	return p
}

func (l *memoryLog) Bounds(context.Context) (Bounds, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return Bounds{ID: l.id, Start: l.start.clone(), End: l.end()}, nil
}

func (l *memoryLog) Open(_ context.Context, from Position) (Tail, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openErr != nil {
		return nil, l.openErr
	}
	l.opened++
	for i := range from {
		if from[i] < l.start[i] {
			return nil, errGap
		}
	}
	l.tails++
	l.wake()
	return &memoryTail{log: l, id: l.id, next: from.clone()}, nil
}

func (l *memoryLog) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tails
}

type memoryTail struct {
	log  *memoryLog
	id   [16]byte
	next Position
}

func (t *memoryTail) Position() Position {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	return t.next.clone()
}

func (t *memoryTail) Close() {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	t.log.tails--
	t.log.wake()
}

func (t *memoryTail) Run(ctx context.Context, each func(topics.Record) error) error {
	for {
		t.log.mu.Lock()
		if t.log.id != t.id {
			t.log.mu.Unlock()
			return errGap
		}
		changed := t.log.changed
		var batch []topics.Record
		for p := range t.next {
			batch = append(batch, t.log.partitions[p][t.next[p]:]...)
		}
		t.log.mu.Unlock()
		for _, r := range batch {
			if r.Topic != "" { // else it is a marker
				if err := each(r); err != nil {
					return err
				}
			}
			t.log.mu.Lock()
			t.next[r.Partition] = r.Offset + 1
			t.log.mu.Unlock()
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// memoryHistory is the event log in memory, with a recorder that can lag.
type memoryHistory struct {
	mu      sync.Mutex
	records []topics.Record
	reads   chan struct{}
}

func (h *memoryHistory) record(records ...topics.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, records...)
}

func (h *memoryHistory) Events(
	_ context.Context, id string, after eventlog.Cursor, limit int,
) ([]eventlog.Entry, eventlog.Cursor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reads != nil {
		select {
		case h.reads <- struct{}{}:
		default:
		}
	}
	var entries []eventlog.Entry
	for _, r := range h.records {
		env, err := topics.DecodeRecord(r)
		if err != nil {
			return nil, after, err
		}
		if env.Subject == id && env.Sequence > after.Sequence && len(entries) < limit {
			entries = append(entries, eventlog.Entry{Record: r})
			after = eventlog.After(env.Sequence)
		}
	}
	return entries, after, nil
}

// bench is a server with streams over a log.
type bench struct {
	t       testing.TB
	hub     *Hub
	streams *Streams
	history *memoryHistory
	url     string
	client  *http.Client
	stand   func() (int64, bool)
}

func newBench(t testing.TB, log Log, change func(*Hub, *Config)) *bench {
	t.Helper()
	b := &bench{t: t, history: &memoryHistory{}, stand: func() (int64, bool) { return 0, false }}
	b.hub = NewHub(topics.ExecutionEvents, log, slog.New(slog.DiscardHandler), nil)
	config := Config{Refill: time.Millisecond}
	if change != nil {
		change(b.hub, &config)
	}
	b.streams = NewStreams(b.history, config, b.hub)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.hub.Run(ctx) }()
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	b.url, b.client = server.URL, server.Client()
	t.Cleanup(func() {
		b.streams.Close()
		server.CloseClientConnections()
		server.Close()
		stop()
		require.NoError(t, <-done)
	})
	return b
}

func (b *bench) serve(w http.ResponseWriter, r *http.Request) {
	var err error
	if id, found := strings.CutPrefix(r.URL.Path, "/executions/"); found {
		err = b.streams.Execution(w, r, ExecutionRequest{
			ID: id, Follow: r.URL.Query().Has("follow"),
			Stand: func(context.Context) (int64, bool, error) { v, ended := b.stand(); return v, ended, nil },
		})
	} else {
		q := r.URL.Query()
		err = b.streams.Events(w, r, topics.ExecutionEvents, Filter{Subjects: q["id"], Types: q["type"], Users: q["user"], Tenant: q.Get("tenant")})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
	}
}

// cursor is that of a client of the bench at these offsets.
func (b *bench) cursor(offsets ...int64) string {
	b.t.Helper()
	bounds, err := b.hub.log.Bounds(b.t.Context())
	require.NoError(b.t, err)
	return cursor{topic: b.hub.tag(), incarnation: tag(bounds.ID[:]), at: offsets}.text()
}

// frame is one message of a stream.
type frame struct {
	id, event, data string
	comment         bool
}

// stream is a client of the bench.
type stream struct {
	t      testing.TB
	cancel context.CancelFunc
	body   io.ReadCloser
	lines  *bufio.Scanner
	lastID string
}

func (b *bench) connect(path, lastID string) *stream {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	require.NoError(b.t, err)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := b.client.Do(req) //nolint:bodyclose // stream.close does
	require.NoError(b.t, err)
	require.Equal(b.t, 200, resp.StatusCode)
	require.Equal(b.t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(b.t, "no-store", resp.Header.Get("Cache-Control"))
	require.Equal(b.t, "no", resp.Header.Get("X-Accel-Buffering"))
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	s := &stream{t: b.t, cancel: cancel, body: resp.Body, lines: lines, lastID: lastID}
	b.t.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	s.cancel()
	_ = s.body.Close()
}

// next returns the next message, also one that is only a comment, or io.EOF.
func (s *stream) next() (frame, error) {
	var f frame
	empty := true
	for s.lines.Scan() {
		line := s.lines.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && !empty:
			if f.id != "" {
				s.lastID = f.id
			}
			return f, nil
		case line == "":
			continue
		case name == "":
			f.comment = true
		case name == "id":
			f.id = value
		case name == "event":
			f.event = value
		case name == "data":
			f.data += value
		case name == "retry":
			if value != "3000" {
				return f, errors.New("retry: " + value)
			}
			continue
		}
		empty = false
	}
	if err := s.lines.Err(); err != nil {
		return f, err
	}
	return f, io.EOF
}

// must returns the next message that is not a ping.
func (s *stream) must() frame {
	s.t.Helper()
	for {
		f, err := s.next()
		require.NoError(s.t, err)
		if !f.comment {
			return f
		}
	}
}

// skipPing reads the ping that begins each stream and carries its cursor.
func (s *stream) skipPing() {
	s.t.Helper()
	f, err := s.next()
	require.NoError(s.t, err)
	require.True(s.t, f.comment, "%+v", f)
	require.NotEmpty(s.t, f.id)
}

// key names the event in a message: subject and sequence.
func (f frame) key(t testing.TB) string {
	t.Helper()
	var e struct{ Subject, Sequence, Type string }
	require.NoError(t, json.Unmarshal([]byte(f.data), &e), f.data)
	require.Equal(t, f.event, e.Type)
	return e.Subject + "/" + e.Sequence
}
