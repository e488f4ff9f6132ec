// Package stages measures how long executions take from one stage of their life to
// the next, and counts what took longer than is promised:
//
//	requested -> logged -> admitted -> leased -> started -> finished
//
// Nothing is asked of the database for that. The times ride in the events: whoever
// reads all events (handlers/recorder) observes all stages but one, after the
// transaction that recorded them, so each is observed once, whatever is delivered
// again. When the work itself was called only its worker knows.
//
// The times of events are those of the database's clock; when a record was logged is
// said by the clock of whoever published it, or by the broker's if the topic is set up
// so. Where clocks differ, so does what is measured between them.
package stages

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stage names what was reached.
type Stage string

// The stages.
const (
	// Logged: the request lies in execution_events. From its receipt.
	Logged Stage = "logged"
	// Admitted: it was let through to the workers. From its request, or from when it
	// might be admitted, where that came later: its not_before, or the end of a backoff.
	Admitted Stage = "admitted"
	// Leased: a worker holds its lease. From its admission.
	Leased Stage = "leased"
	// Started: its work was called. From when the worker asked for the lease.
	Started Stage = "started"
	// Finished: the last attempt has ended, and was not cancelled. From its lease.
	Finished Stage = "finished"
)

// Level names what is promised.
type Level string

// The service levels.
const (
	// LevelLog: a request lies in execution_events within LogLimit of its receipt.
	LevelLog Level = "log"
	// LevelTask: an execution lies in a task topic within TaskLimit of its request, or
	// of when it might be admitted.
	LevelTask Level = "task"
)

// The limits of the service levels.
const (
	LogLimit  = 100 * time.Millisecond
	TaskLimit = 30 * time.Second
)

// limits are those of all levels.
func limits() map[Level]time.Duration {
	return map[Level]time.Duration{LevelLog: LogLimit, LevelTask: TaskLimit}
}

// Stages are the instruments of a process.
type Stages struct {
	seconds  *prometheus.HistogramVec
	breaches *prometheus.CounterVec
}

// New registers the instruments, or takes those that are registered already. It
// panics when something else has their names.
func New(reg prometheus.Registerer) *Stages {
	s := &Stages{
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "millrace_stage_seconds", Help: "Time that executions took to a stage from the one before it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
		}, []string{"stage"})),
		breaches: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_service_level_breaches_total", Help: "Executions that took longer than their service level allows.",
		}, []string{"level"})),
	}
	for level := range limits() {
		s.breaches.WithLabelValues(string(level)) // so that the first one is a rise
	}
	return s
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// Observe notes how long it took to a stage. What is negative is what clocks differ
// by, and counts as nothing.
func (s *Stages) Observe(stage Stage, took time.Duration) {
	s.seconds.WithLabelValues(string(stage)).Observe(max(took, 0).Seconds())
}

// Judge counts a breach of the level if that took longer than it allows.
func (s *Stages) Judge(level Level, took time.Duration) {
	if took > limits()[level] {
		s.breaches.WithLabelValues(string(level)).Inc()
	}
}
