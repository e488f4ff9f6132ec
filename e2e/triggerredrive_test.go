package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
)

// A message that a trigger's mapping does not fit becomes a dead letter; once the mapping is
// mended, a redrive makes its execution, and neither the topic nor another reader of it
// hears of that.
func TestALetterOfATriggerIsRedrivenToTheTrigger(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	p := in.serve("all", "api,triggers,relay,maintenance").ready()
	api := p.client()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	admin := kadm.NewClient(kafka)
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, "orders")
	require.NoError(t, err)
	apply := func(mapping string) {
		_, err := api.ApplyTrigger(t.Context(), "orders", fmt.Appendf(nil, `{"id": "orders", "kafka": {"topics": ["orders"]},
			"target": {"execution": {"executor": "function", "spec": {"name": "f", "args": {"n": %q}}}}}`, mapping), false)
		require.NoError(t, err)
	}
	apply("${body.order.number + 1}")
	require.NoError(t, kafka.ProduceSync(t.Context(),
		&kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(`{"n": "1"}`), Headers: []kgo.RecordHeader{{Key: "raw", Value: []byte{0xff, 0}}}},
		&kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(`{"order": {"number": 1}}`)},
	).FirstErr())
	await(t, stuckAfter, "one is a letter and one is made", func() bool {
		return in.count(`SELECT count(*) FROM dead_letters WHERE consumer = 'trigger.orders' AND status = 'OPEN'`) == 1 &&
			in.count(`SELECT count(*) FROM executions`) == 1
	})
	id := in.texts(`SELECT id::text FROM dead_letters`)[0]

	redrive := func() {
		result, err := api.Redrive(t.Context(), client.Redrive{IDs: []string{id}, Reason: "mended"})
		require.NoError(t, err)
		require.Equal(t, 1, result.Redriven)
	}
	redrive() // in vain
	await(t, stuckAfter, "it is open again", func() bool {
		return in.count(`SELECT count(*) FROM dead_letters WHERE status = 'OPEN' AND replay_count = 1 AND attempts = 2`) == 1
	})
	apply("${body.n}")
	redrive()
	await(t, stuckAfter, "it is made", func() bool { return in.count(`SELECT count(*) FROM dead_letters WHERE status = 'RESOLVED'`) == 1 })
	assert.Equal(t, []string{"1", "2"}, in.texts(`SELECT request->'spec'->'args'->>'n' FROM executions ORDER BY 1`))
	assert.Equal(t, []string{"2"}, in.texts(`SELECT count(*)::text FROM executions WHERE request->'origin'->>'trigger' = 'orders' AND request->'origin'->'metadata'->>'topic' = 'orders'`))
	ends, err := admin.ListEndOffsets(t.Context(), "orders")
	require.NoError(t, err)
	end, ok := ends.Lookup("orders", 0)
	require.True(t, ok)
	assert.EqualValues(t, 2, end.Offset, "nothing was written to the topic")
	in.stopAll()
}
