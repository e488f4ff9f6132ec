package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/topics"
)

// Cause is what an event hands down to the events that it leads to.
type Cause struct {
	// CorrelationID groups everything that one request set off.
	CorrelationID string
	// CausationID is the id of the event that is being handled.
	CausationID string
}

// CauseOf returns the cause that events published while handling env have. An
// event without a correlation id starts a group of its own, named by its id.
func CauseOf(env topics.Envelope) Cause {
	c := Cause{CorrelationID: env.CorrelationID, CausationID: env.ID}
	if c.CorrelationID == "" {
		c.CorrelationID = env.ID
	}
	return c
}

type causeKey struct{}

// WithCause returns a context whose published events have the cause c.
func WithCause(ctx context.Context, c Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// CauseFrom returns the cause that ctx carries, or the zero Cause.
func CauseFrom(ctx context.Context) Cause {
	c, _ := ctx.Value(causeKey{}).(Cause)
	return c
}

// continueTrace starts the span of the flight. A single record continues its
// producer's trace; a batch has many producers, so its span starts a trace of
// its own with a link to each of them. The cause of a single record goes into
// the context; of a batch only a correlation id that all its records share does.
func continueTrace(cfg Config) message.HandlerMiddleware {
	var w3c propagation.TraceContext
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			flight := flightOf(msg)
			outer := msg.Context() // only now: flightOf may have added the flight
			ctx, cause, links := outer, Cause{}, []trace.Link(nil)
			if len(flight.Items) == 1 {
				if env, err := flight.Items[0].Envelope(); err == nil {
					cause = CauseOf(env)
					ctx = w3c.Extract(ctx, carrier(env))
				}
			} else {
				cause, links = causeOfBatch(ctx, w3c, flight)
			}
			if cause != (Cause{}) {
				ctx = WithCause(ctx, cause)
			}
			ctx, span := cfg.Tracer.Start(ctx, "process "+flight.Delivery.Topic,
				trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
				trace.WithAttributes(
					attribute.String("messaging.system", "kafka"),
					attribute.String("messaging.operation.type", "process"),
					attribute.String("messaging.destination.name", flight.Delivery.Topic),
					attribute.String("messaging.consumer.group.name", cfg.Group),
					attribute.Int("messaging.batch.message_count", len(flight.Items)),
					attribute.Int64("messaging.kafka.offset", flight.Delivery.First().Offset),
				))
			defer span.End()
			msg.SetContext(ctx)
			defer msg.SetContext(outer)
			out, err := next(msg)
			if err != nil {
				span.RecordError(err)
				span.SetStatus(codes.Error, truncate(err.Error(), MaxReasonBytes))
			}
			return out, err
		}
	}
}

// causeOfBatch returns what all records have in common, and a link per trace.
func causeOfBatch(ctx context.Context, w3c propagation.TraceContext, f *Flight) (Cause, []trace.Link) {
	var links []trace.Link
	correlation, shared := "", true
	for i := range f.Items {
		env, err := f.Items[i].Envelope()
		if err != nil {
			continue
		}
		if id := CauseOf(env).CorrelationID; correlation == "" {
			correlation = id
		} else if id != correlation {
			shared = false
		}
		if env.TraceParent == "" {
			continue
		}
		if sc := trace.SpanContextFromContext(w3c.Extract(ctx, carrier(env))); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	if !shared {
		correlation = ""
	}
	return Cause{CorrelationID: correlation}, links
}

func carrier(env topics.Envelope) propagation.MapCarrier {
	return propagation.MapCarrier{"traceparent": env.TraceParent, "tracestate": env.TraceState}
}
