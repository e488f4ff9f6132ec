package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func ignore[E any](context.Context, E) error                     { return nil }
func ignoreTx[E any](context.Context, pipeline.Tx, E) error      { return nil }
func ignoreBatch[E any](context.Context, pipeline.Tx, []E) error { return nil }
func consumer(h pipeline.Handler) pipeline.Consumer {
	return pipeline.Consumer{Name: "audit", Topic: topics.ExecutionEvents, Handle: h}
}

func TestConsumerDefaults(t *testing.T) {
	t.Parallel()
	c := consumer(pipeline.OnBatchTx(ignoreBatch[topics.Envelope]))
	require.NoError(t, c.Validate())
	c = c.WithDefaults()
	assert.Equal(t, pipeline.BatchSizeDefault, c.BatchSize)
	assert.Equal(t, pipeline.TimeoutDefault, c.Timeout)
	assert.Equal(t, 5, c.Delivery.MaxAttempts)
	assert.Equal(t, topics.DeadLetters, c.Delivery.DeadLetterTopic)
	assert.Equal(t, 1, consumer(pipeline.On(ignore[topics.Record])).WithDefaults().BatchSize)
	assert.Zero(t, c.Delivery.MaxParked, "not ordered per key")
	c.Delivery.Ordered = pipeline.PerKey
	require.NoError(t, c.Validate())
	assert.Equal(t, pipeline.MaxParkedDefault, c.WithDefaults().Delivery.MaxParked)
	c.Delivery.MaxParked = 50_000
	require.NoError(t, c.Validate(), "the limit of the partition follows")
}

func TestConsumerValidateNamesEveryMistake(t *testing.T) {
	t.Parallel()
	on := pipeline.On(ignore[topics.ExecutionCompleted])
	for want, c := range map[string]pipeline.Consumer{
		`name "Audit"`:    {Name: "Audit", Topic: "t", Handle: on},
		"topic is empty":  {Name: "audit", Handle: on},
		"handle is empty": {Name: "audit", Topic: "t"},
		"only OnBatch and OnBatchTx take batches":            {Name: "audit", Topic: "t", Handle: on, BatchSize: 10},
		"gather 1s: only OnBatch and OnBatchTx take batches": {Name: "audit", Topic: "t", Handle: on, Gather: time.Second},
		"gather 1h0m0s: want 0 to 1s":                        {Name: "audit", Topic: "t", Handle: on, Gather: time.Hour},
		"only OnTx and OnBatchTx keep an inbox":              {Name: "audit", Topic: "t", Handle: on, GuardedByState: true},
		"is the topic that is read":                          {Name: "audit", Topic: topics.DeadLetters, Handle: on},
		"max attempts -1":                                    {Name: "audit", Topic: "t", Handle: on, Delivery: pipeline.Delivery{MaxAttempts: -1}},
		"multiplier 0.1":                                     {Name: "audit", Topic: "t", Handle: on, Delivery: pipeline.Delivery{Backoff: pipeline.Backoff{Multiplier: 0.1}}},
		"int is neither an event":                            consumer(pipeline.On(ignore[int])),
		"take the event as a value":                          consumer(pipeline.On(ignore[*topics.ExecutionCompleted])),
		"the function is nil":                                consumer(pipeline.OnTx[topics.ExecutionCompleted](nil)),
		"no handlers":                                        consumer(pipeline.Mux()),
		"joins On with OnTx":                                 consumer(pipeline.Mux(on, pipeline.OnTx(ignoreTx[topics.ExecutionFailed]))),
		"two handlers for millrace.execution.completed":      consumer(pipeline.Mux(on, on)),
		"two handlers for topics.Envelope":                   consumer(pipeline.Mux(pipeline.On(ignore[topics.Envelope]), pipeline.On(ignore[topics.Envelope]))),
		"only OnTx and OnBatchTx can park":                   {Name: "audit", Topic: "t", Handle: on, Delivery: pipeline.Delivery{Ordered: pipeline.PerKey}},
		"ordered 2: want":                                    {Name: "audit", Topic: "t", Handle: on, Delivery: pipeline.Delivery{Ordered: 2}},
		"only PerKey parks":                                  {Name: "audit", Topic: "t", Handle: on, Delivery: pipeline.Delivery{MaxParked: 1}},
		"max parked 5 and 4": {Name: "audit", Topic: "t", Handle: pipeline.OnTx(ignoreTx[topics.Record]),
			Delivery: pipeline.Delivery{Ordered: pipeline.PerKey, MaxParked: 5, MaxParkedTotal: 4}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			assert.ErrorContains(t, c.Validate(), want)
		})
	}
	err := pipeline.Consumer{}.Validate()
	assert.ErrorContains(t, err, "name")
	assert.ErrorContains(t, err, "topic is empty")
	assert.ErrorContains(t, err, "handle is empty")
}

func TestProcessorNeedsWhatItsKindNeeds(t *testing.T) {
	t.Parallel()
	_, err := pipeline.NewProcessor(consumer(pipeline.OnTx(ignoreTx[topics.Record])), pipeline.ProcessorConfig{})
	require.ErrorContains(t, err, "needs a database")
	_, err = pipeline.NewProcessor(consumer(pipeline.On(ignore[topics.Record])), pipeline.ProcessorConfig{})
	require.ErrorContains(t, err, "needs a publisher of dead letters")
	assert.Equal(t, "handler", middleware.HandlerFault.String())
}
