package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stage is a moment in the life of an execution.
type stage int

const (
	requestedEvent stage = iota // its requested event was read from execution_events
	started                     // its function was called
	startedEvent
	endedEvent
	stages
)

// terminal are the types of events that end an execution.
var terminal = map[string]bool{"completed": true, "failed": true, "timed_out": true, "cancelled": true, "rejected": true, "quarantined": true}

// observer notes when executions reach their stages. The first time counts.
type observer struct {
	mu    sync.Mutex
	lives map[string]*[stages]time.Time
	ended int
	// changed is closed and replaced whenever an execution has ended.
	changed chan struct{}
	lastEnd time.Time
	// pause is how long to wait between two reads, which makes the observer cheap for
	// the broker and late by as much.
	pause atomic.Int64
	// unwell counts executions that did not complete.
	unwell int
}

func newObserver() *observer {
	return &observer{lives: map[string]*[stages]time.Time{}, changed: make(chan struct{})}
}

// consume reads events until ctx ends.
func (o *observer) consume(ctx context.Context, client *kgo.Client) {
	for {
		fetches := client.PollFetches(ctx)
		if pause := time.Duration(o.pause.Load()); pause > 0 {
			time.Sleep(pause)
		}
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) { o.event(r, now) })
	}
}

func (o *observer) event(r *kgo.Record, now time.Time) {
	for _, h := range r.Headers {
		if h.Key != "ce_type" {
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(string(h.Value), "millrace.execution."), ".v1")
		switch {
		case name == "requested":
			o.note(string(r.Key), requestedEvent, now)
		case name == "started":
			o.note(string(r.Key), startedEvent, now)
		case terminal[name]:
			o.end(string(r.Key), name, now)
		}
		return
	}
}

func (o *observer) note(id string, s stage, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.life(id)[s] = now
}

// life returns the times of an execution; a second note of one stage is a
// redelivery, and is caught by the callers that count.
func (o *observer) life(id string) *[stages]time.Time {
	l := o.lives[id]
	if l == nil {
		l = new([stages]time.Time)
		o.lives[id] = l
	}
	return l
}

func (o *observer) end(id, outcome string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.life(id)
	if !l[endedEvent].IsZero() {
		return // published again
	}
	l[endedEvent], o.lastEnd = now, now
	o.ended++
	if outcome != "completed" {
		o.unwell++
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// count returns how many executions have ended, how many of them not well, and
// when the last did.
func (o *observer) count() (ended, unwell int, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended, o.unwell, o.lastEnd
}

// waitEnded waits until n executions have ended in all.
func (o *observer) waitEnded(ctx context.Context, n int) error {
	for {
		o.mu.Lock()
		done, changed := o.ended >= n, o.changed
		o.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// times returns when an execution reached its stages.
func (o *observer) times(id string) [stages]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *o.life(id)
}
