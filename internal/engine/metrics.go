package engine

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/workflow"
)

// metrics are those of the engine. Names without "millrace" are those of the engine whose
// contract this is.
type metrics struct {
	started     prometheus.Counter
	completed   *prometheus.CounterVec
	steps       *prometheus.CounterVec
	transaction *prometheus.HistogramVec
	// locked is of the one way in which instances are locked.
	locked    prometheus.Observer
	size      prometheus.Histogram
	refused   prometheus.Counter
	repeated  prometheus.Counter
	fired     *prometheus.CounterVec
	purged    prometheus.Counter
	delayed   prometheus.Counter
	late      prometheus.Counter
	attention *prometheus.GaugeVec
	// owed has a row while it is counted here, and no label.
	owed *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer, e *Engine) *metrics {
	m := &metrics{
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "workflow_instances_started_total", Help: "Workflow instances that were started."}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workflow_instances_completed_total", Help: "Workflow instances that have ended, by outcome: completed, failed, cancelled or compensated."}, []string{"outcome"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workflow_steps_executed_total", Help: "Steps that were entered, by the type of the step."}, []string{"step_type"}),
		transaction: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "engine_db_transaction_duration_seconds", Help: "How long transactions of the workflow engine take, repetitions included.",
			Buckets: transactionBuckets()}, []string{"tx_type"}),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "millrace_engine_transaction_requests", Help: "How many requests shared a transaction of the workflow engine.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_engine_overloaded_total", Help: "Requests that found the queue of the workflow engine full."}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_engine_transactions_repeated_total", Help: "Transactions of the workflow engine that were run again: for another's sake, a broken connection, or an id that was taken."}),
		fired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_engine_timers_fired_total", Help: "Timers of instances that fired, by kind."}, []string{"kind"}),
		purged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_engine_instances_removed_total", Help: "Instances that were removed after their retention."}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_engine_next_delayed_total", Help: "Workflows that were to follow another one and could not be started: their definition was not there."}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_engine_next_started_late_total", Help: "Those of millrace_engine_next_delayed_total that were started since."}),
	}
	locks := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "engine_db_lock_wait_duration_seconds", Help: "How long it takes to lock the rows of a transaction of the workflow engine: the round trip, and the wait for others.",
		Buckets: transactionBuckets()}, []string{"operation"})
	m.locked = locks.WithLabelValues("instance.for_update")
	m.attention = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_engine_instances_needing_attention", Help: "Sagas and workflows in NEEDS_ATTENTION, by kind, in the process that does the housekeeping."},
		[]string{"kind"})
	m.owed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millrace_engine_next_owed", Help: "Instances that have completed and whose following workflow is not started yet, since its definition is not there, in the process that does the housekeeping."},
		nil)
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_engine_requests_waiting", Help: "Requests that wait for a transaction of the workflow engine."},
		func() float64 { return float64(e.queue.length()) })
	if reg != nil {
		reg.MustRegister(m.started, m.completed, m.steps, m.transaction, locks, m.size, m.refused, m.repeated, m.fired, m.purged, m.delayed, m.late, m.attention, m.owed, waiting)
	}
	return m
}

func transactionBuckets() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}
}

// tally counts what one transaction brings about.
type tally struct {
	started int
	ended   map[string]int
	steps   map[workflow.StepType]int
	fired   map[workflow.TimerKind]int
	retries int
	// delayed and late count instances that are to follow others.
	delayed, late int
}

func (t *tally) note(before workflow.Status, c workflow.Changes) {
	if c.State.Status.Final() && !before.Final() {
		if t.ended == nil {
			t.ended = map[string]int{}
		}
		t.ended[statusWord(c.State.Status)]++
	}
	for i := range c.Entries {
		// A step that ends with the input in which it began has no entry of its beginning.
		e := &c.Entries[i]
		passed := e.BeganAt.IsZero() && (e.Kind == workflow.StepCompleted || e.Kind == workflow.StepFailed)
		if e.Kind == workflow.StepEntered || passed {
			if t.steps == nil {
				t.steps = map[workflow.StepType]int{}
			}
			t.steps[e.StepType]++
		}
	}
}

func (t *tally) fire(kind workflow.TimerKind) {
	if t.fired == nil {
		t.fired = map[workflow.TimerKind]int{}
	}
	t.fired[kind]++
}

func (m *metrics) count(t *tally) {
	if t.started > 0 {
		m.started.Add(float64(t.started))
	}
	m.delayed.Add(float64(t.delayed))
	m.late.Add(float64(t.late))
	for outcome, n := range t.ended {
		m.completed.WithLabelValues(outcome).Add(float64(n))
	}
	for kind, n := range t.steps {
		m.steps.WithLabelValues(string(kind)).Add(float64(n))
	}
	for kind, n := range t.fired {
		m.fired.WithLabelValues(string(kind)).Add(float64(n))
	}
}

// statusWord is a status in lower case, for labels and codes.
func statusWord(s workflow.Status) string { return strings.ToLower(string(s)) }
