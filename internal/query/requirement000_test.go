package query_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/query"
)

// Requirement 000, Comparison: its Kafka mode answers what standard SQL can, and full
// text and complex aggregations want Elasticsearch. Here the tables that Kafka fills
// answer all three.
func TestRequirement000_Comparison_FullTextAndAggregationsWithoutElasticsearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.workflow("paid", map[string]any{"namespace": "org.acme", "name": "order", "version": "1", "status": "COMPLETED", "input": `{"customer":"Ann Miller"}`})
	w.workflow("refused", map[string]any{"namespace": "org.acme", "name": "order", "version": "2", "status": "FAULTED",
		"input": `{"customer":"Bob Miller"}`, "error_title": "Payment refused", "error_detail": "the bank does not answer"})
	w.workflow("shipped", map[string]any{"namespace": "org.acme", "name": "ship", "version": "1", "status": "COMPLETED", "output": `{"by":"truck"}`})

	standard := query.And{query.Test{Field: "name", Op: query.Eq, Value: "order"}, query.Test{Field: "status", Op: query.Ne, Value: "COMPLETED"}}
	assert.Equal(t, []string{"refused"}, ids(t, w.store.WorkflowInstances(), query.Request{Filter: standard}))
	assert.Equal(t, []string{"refused"}, ids(t, w.store.WorkflowInstances(), query.Request{Filter: query.Search{Text: "miller bank"}}))
	assert.Equal(t, []string{"shipped"}, ids(t, w.store.WorkflowInstances(), query.Request{Filter: query.Search{Text: "truck"}}))
	assert.Equal(t, []string{"order/COMPLETED/=1", "order/FAULTED/=1", "ship/COMPLETED/=1"},
		shown(aggregate(t, w.store.WorkflowInstances(), query.Aggregate{GroupBy: []string{"name", "status"}})))
}
