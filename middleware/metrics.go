package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the instruments of all consumers of one process.
type Metrics struct {
	consumed   *prometheus.CounterVec
	processing *prometheus.HistogramVec
}

// NewMetrics registers the instruments with reg, or takes those that are
// registered there already.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	consumed, err := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_events_consumed_total",
		Help: "Records that passed through a consumer, by outcome. Records that are delivered again count again.",
	}, []string{"consumer", "topic", "outcome"}))
	if err != nil {
		return nil, err
	}
	processing, err := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "millrace_event_processing_seconds",
		Help:    "Time from the delivery of a record or batch to its ack or nack, with all attempts and waits.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"consumer", "topic"}))
	if err != nil {
		return nil, err
	}
	return &Metrics{consumed: consumed, processing: processing}, nil
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register consumer metrics: %w", err)
	}
	return c, nil
}

// measure is the outermost stage: it makes the flight, counts each of its
// records by outcome, and tells the transport why a delivery is nacked.
func measure(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			start := time.Now()
			flight := flightOf(msg)
			out, err := next(msg)
			if err != nil {
				flight.Delivery.Fail(err)
			}
			// The context is that of the message again: inner stages put back what they
			// changed.
			rest := outcomeOf(msg.Context(), cfg.Classifier, err)
			if cfg.Metrics != nil {
				cfg.Metrics.observe(cfg.Consumer, flight, rest, time.Since(start))
			}
			return out, err
		}
	}
}

// outcomeOf is the outcome of the records that nobody has decided about.
func outcomeOf(ctx context.Context, c Classifier, err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrFenced):
		return Fenced
	case c.Classify(ctx, err) == ShutdownFault:
		return Interrupted
	default:
		return Stalled
	}
}

func (m *Metrics) observe(consumer string, f *Flight, rest Outcome, took time.Duration) {
	topic := f.Delivery.Topic
	m.processing.WithLabelValues(consumer, topic).Observe(took.Seconds())
	if len(f.Items) == 1 {
		m.consumed.WithLabelValues(consumer, topic, string(decided(f.Items[0].Outcome, rest))).Inc()
		return
	}
	counts := make(map[Outcome]int, 2)
	for i := range f.Items {
		counts[decided(f.Items[i].Outcome, rest)]++
	}
	for outcome, n := range counts {
		m.consumed.WithLabelValues(consumer, topic, string(outcome)).Add(float64(n))
	}
}

func decided(o, rest Outcome) Outcome {
	if o == Open {
		return rest
	}
	return o
}
