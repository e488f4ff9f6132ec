package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millrace/millrace/topics"
)

// Exhausted says what happens when a handler fault outlasts its attempts.
type Exhausted uint8

// What happens after the last attempt.
const (
	// DeadLetter files the record and goes on with the next one.
	DeadLetter Exhausted = iota
	// Block stalls the partition: the record is attempted again, with the
	// transport's growing pauses, until it succeeds.
	Block
)

// Config is what the stages of one consumer's chain need to know.
type Config struct {
	// Consumer and Group name the consumer in metrics, headers and logs.
	Consumer, Group string
	// Untargeted lets records through whose header millrace-target names others.
	// Defaults to false.
	Untargeted bool
	// Replay lets records through that a replay session has re-emitted. Defaults
	// to false: they are acked without effect.
	Replay bool
	// MaxAttempts is how often a record is attempted before OnExhausted applies.
	// Defaults to 5.
	MaxAttempts int
	Backoff     Backoff
	// OnExhausted defaults to DeadLetter.
	OnExhausted Exhausted
	Breaker     Breaker
	// Condemned, if set, is asked about every live record before the handler is: it
	// returns the class and the error with which somebody has ordered the record to
	// be dead-lettered, or false.
	Condemned func(r topics.Record) (class Class, err error, ordered bool)
	// Timeout limits one attempt. Zero means no limit.
	Timeout    time.Duration
	Classifier Classifier
	// Metrics may be nil: then nothing is counted.
	Metrics *Metrics
	// Tracer may be nil: then spans are not recorded, but the context of the trace
	// still passes through.
	Tracer trace.Tracer
	// Log takes panics with their stacks and a line per dead letter. Defaults to
	// a logger that discards.
	Log *slog.Logger
	// Now, Rand and Sleep are replaced in tests. Rand returns numbers in [0, 1).
	// Sleep waits for d, or less if ctx ends, and reports whether ctx is alive.
	Now   func() time.Time
	Rand  func() float64
	Sleep func(ctx context.Context, d time.Duration) bool
}

// Defaults of Config.
const (
	MaxAttemptsDefault = 5
)

func (c Config) withDefaults() Config {
	c.MaxAttempts = cmp.Or(c.MaxAttempts, MaxAttemptsDefault)
	c.Backoff = c.Backoff.WithDefaults()
	c.Breaker = c.Breaker.withDefaults()
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	return c
}

// Chain returns the stages of one consumer, outermost first. The order is part
// of the guarantees of this package; see its documentation.
func Chain(cfg Config) []message.HandlerMiddleware {
	cfg = cfg.withDefaults()
	return []message.HandlerMiddleware{
		measure(cfg),
		continueTrace(cfg),
		fence(cfg),
		target(cfg),
		poison(cfg),
		retry(cfg),
		recoverPanic(cfg),
		limitTime(cfg),
	}
}

// Apply returns h inside the chain, as Watermill's router would run it.
func Apply(h message.HandlerFunc, chain []message.HandlerMiddleware) message.HandlerFunc {
	for i := len(chain) - 1; i >= 0; i-- {
		h = chain[i](h)
	}
	return h
}
