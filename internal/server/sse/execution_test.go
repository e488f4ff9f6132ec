package sse

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

// requireLife reads the events from first to last and then the end.
func requireLife(t *testing.T, s *stream, id string, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		require.Equal(t, fmt.Sprintf("%s/%d", id, i), s.must().key(t))
	}
	require.Equal(t, EventEnd, s.must().event)
	_, err := s.next()
	require.ErrorIs(t, err, io.EOF)
}

func TestAnExecutionIsFollowedFromItsBeginningToItsEnd(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	events := life(t, "e1", 10)
	b.history.record(events[:4]...)
	b.stand = func() (int64, bool) { return 4, false }
	s := b.connect("/executions/e1", "")
	for i := 1; i <= 4; i++ {
		require.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
	// The relay repeats an event that the history had; another execution's events
	// lie in between.
	log.publish(0, events[2], output(t, "e2", 1), events[4], events[4])
	log.publish(0, events[5:]...)
	requireLife(t, s, "e1", 5, 10)
}

// The recorder, the relay and the client are at any distance from each other:
// events that passed the hub before the client joined are found in the event log
// when the recorder gets there, and those that come early wait for their turn.
func TestNothingIsMissingWhereverTheEventsAreOnTheirWay(t *testing.T) {
	t.Parallel()
	for range 30 {
		log := newMemoryLog(1)
		b := newBench(t, log, nil)
		const n = 12
		events := life(t, "e1", n)
		stored := rand.IntN(n + 1)           // in the write model when the client comes
		published := rand.IntN(stored + 1)   // in the topic by then
		recorded := rand.IntN(published + 1) // in the event log by then
		log.publish(0, events[:published]...)
		b.history.record(events[:recorded]...)
		b.stand = func() (int64, bool) { return int64(stored), stored == n }
		s := b.connect("/executions/e1", "")
		s.skipPing()
		log.publish(0, events[published:]...)
		b.history.record(events[recorded:]...)
		requireLife(t, s, "e1", 1, n)
	}
}

func TestAnExecutionThatHasEndedIsShownAndLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t, newMemoryLog(1), nil)
	b.history.record(life(t, "e1", 3)...)
	b.stand = func() (int64, bool) { return 3, true }
	s := b.connect("/executions/e1", "")
	requireLife(t, s, "e1", 1, 3)

	requireLife(t, b.connect("/executions/e1", sequenceText(1)), "e1", 2, 3)
	requireLife(t, b.connect("/executions/e1", s.lastID), "e1", 4, 3)
}

// What becomes of pods has its place in the history behind the end of the execution.
func TestWhatIsToldAfterTheEndIsShown(t *testing.T) {
	t.Parallel()
	log := newMemoryLog(1)
	b := newBench(t, log, nil)
	pod := topics.Pod{ExecutionID: "e1", Attempt: 1, PodID: "p1", Namespace: "work", Name: "e1-1"}
	deleted := event(t, "e1", 4, topics.PodDeleted{Pod: pod, DeletedAt: time.Now()})
	b.history.record(life(t, "e1", 3)...)
	b.stand = func() (int64, bool) { return 4, true }
	s := b.connect("/executions/e1", "")
	for i := 1; i <= 3; i++ {
		require.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
	s.skipPing()
	log.publish(0, deleted)
	b.history.record(deleted)
	requireLife(t, s, "e1", 4, 4)
	requireLife(t, b.connect("/executions/e1", sequenceText(2)), "e1", 3, 4)
}

func TestFollowKeepsTheStreamOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t, newMemoryLog(1), func(_ *Hub, c *Config) { c.Ping = time.Millisecond })
	b.history.record(life(t, "e1", 3)...)
	b.stand = func() (int64, bool) { return 3, true }
	s := b.connect("/executions/e1?follow", "")
	for i := 1; i <= 3; i++ {
		require.Equal(t, fmt.Sprintf("e1/%d", i), s.must().key(t))
	}
	f, err := s.next()
	require.NoError(t, err)
	assert.True(t, f.comment, "a ping, not the end")
}

func TestALongHistoryComesWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t, newMemoryLog(1), nil)
	const n = 2*historyPage + 3
	b.history.record(life(t, "e1", n)...)
	b.stand = func() (int64, bool) { return n, true }
	requireLife(t, b.connect("/executions/e1", ""), "e1", 1, n)
}

func TestAHistoryThatNoLongerReachesBackIsAReset(t *testing.T) {
	t.Parallel()
	b := newBench(t, newMemoryLog(1), func(_ *Hub, c *Config) { c.Patience = time.Millisecond })
	b.history.record(life(t, "e1", 6)[3:]...)
	b.stand = func() (int64, bool) { return 6, true }
	s := b.connect("/executions/e1", "")
	f := s.must()
	assert.Equal(t, EventReset, f.event)
	assert.Contains(t, f.data, "history_incomplete")
	requireLife(t, s, "e1", 4, 6)
}
