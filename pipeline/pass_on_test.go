package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func passable(t *testing.T, id string) topics.Envelope {
	t.Helper()
	typ, ok := topics.Lookup(topics.ExecutionTask{}.EventType())
	require.True(t, ok)
	env, err := topics.NewEnvelope(typ.Example, topics.WithID(id), topics.WithSource("/elsewhere"),
		topics.WithTime(time.Unix(5, 0)), topics.WithCorrelation("correlation", "cause"), topics.WithSequence(7),
		topics.WithTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"), topics.WithExtension("tenantkey", "t"))
	require.NoError(t, err)
	return env
}

// What is passed on is the same event, whatever kind of handler does it.
func TestPassOnChangesNothing(t *testing.T) {
	t.Parallel()
	const next topics.Topic = "execution_tasks_next"
	for name, handle := range map[string]pipeline.Handler{
		"OnTx": pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, _ topics.ExecutionTask) error {
			return tx.Publish(ctx, pipeline.PassOn(pipeline.Metadata(ctx), next))
		}),
		"OnBatchTx": pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.ExecutionTask) error {
			for i := range batch {
				if err := tx.Publish(ctx, pipeline.PassOn(pipeline.BatchMetadata(ctx)[i], next)); err != nil {
					return err
				}
			}
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := pipelinetest.New(t, pipeline.Consumer{Name: "stage", Topic: topics.ExecutionTasks, Handle: handle})
			in := []topics.Envelope{passable(t, "id-1"), passable(t, "id-2")}
			h.FeedEnvelope(in...)
			out := h.PublishedEnvelopes()
			require.Len(t, out, 2)
			for i, o := range out {
				assert.Equal(t, in[i], o.Envelope)
				assert.Equal(t, next, o.Topic)
				assert.Equal(t, in[i].Subject, o.AggregateID, "the key stays what it was")
				assert.Equal(t, "execution", o.AggregateType)
			}
		})
	}
}

// records keeps what is published.
type records struct{ published []topics.Record }

func (r *records) PublishRecords(_ context.Context, list []topics.Record) []error {
	r.published = append(r.published, list...)
	return nil
}

func TestPassOnOutsideATransaction(t *testing.T) {
	t.Parallel()
	env := passable(t, "id-1")
	var out records
	p := pipeline.NewPublisher(&out, topics.Naming{"execution_tasks_next": "prod.next"})
	require.NoError(t, p.Publish(t.Context(), pipeline.PassOn(pipeline.EventMetadata{Envelope: env}, "execution_tasks_next")))
	require.Len(t, out.published, 1)
	assert.Equal(t, env.Record("prod.next", []byte(env.Subject)), out.published[0])
}
