package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/pipeline/pipelinetest"
)

// pipelinetest runs handlers against PostgreSQL inside a transaction of the
// test's own, and takes back what a failing handler did.
func TestPipelinetestWithTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, tx.Rollback(t.Context())) }()
	h := pipelinetest.New(t, pipeline.Consumer{Name: "marker", Topic: "marks", Handle: pipeline.OnTx(insertMark)}, pipelinetest.WithTx(tx))
	outcomes := h.Feed(mark{ID: "a"}, mark{ID: "forbidden"}, mark{ID: "b"})
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done, pipelinetest.DeadLettered, pipelinetest.Done}, outcomes)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE id IN ('a', 'b')`).Scan(&n))
	assert.Equal(t, 2, n)
	assert.Empty(t, b.effects(t), "nothing leaves the test's transaction")
}
