package pipeline_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// resolver is a store that is told of letters, and may fail.
type resolver struct {
	pipeline.Store
	err  error
	told []string
}

func (r *resolver) Resolve(_ context.Context, consumer string, letters []string) error {
	r.told = append(append(r.told, consumer), letters...)
	return r.err
}

// noLetters is a publisher that must not be called.
type noLetters struct{ t *testing.T }

func (p noLetters) PublishRecords(context.Context, []topics.Record) []error {
	p.t.Error("a letter was published")
	return nil
}

// What an On consumer has processed stays processed, whether its letter can be
// marked or not.
func TestARedrivenRecordThatAnOnConsumerProcessedResolvesItsLetter(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, errors.New("no database")} {
		store := &resolver{err: fault}
		calls := 0
		c := consumer(pipeline.On(func(context.Context, topics.Record) error { calls++; return nil }))
		p, err := pipeline.NewProcessor(c, pipeline.ProcessorConfig{Store: store, DeadLetters: noLetters{t}})
		require.NoError(t, err)
		outcomes, err := p.Process(t.Context(), &delivery.Delivery{Try: 1, Records: []topics.Record{
			{Headers: []topics.Header{{Key: middleware.HeaderRedriveOf, Value: []byte("a letter")}}}}})
		require.NoError(t, err)
		assert.Equal(t, []middleware.Outcome{middleware.Done}, outcomes)
		_, err = p.Process(t.Context(), &delivery.Delivery{Try: 1, Records: []topics.Record{{Offset: 1}}})
		require.NoError(t, err)
		assert.Equal(t, []string{"audit", "a letter"}, store.told, "records without the header cost nothing")
		assert.Equal(t, 2, calls)
	}
}
