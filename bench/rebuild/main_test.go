package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/projections"
)

// What is planted is what the data index reads.
func TestWhatIsPlanted(t *testing.T) {
	t.Parallel()
	b := &bench{options: options{tasks: 2, payload: 10, partitions: 3}, model: rebuild.ModelOf(projections.DataIndex(nil), nil)}
	offsets := make([]int64, 3)
	records, err := b.instances(offsets, time.Now())
	require.NoError(t, err)
	require.Len(t, records, 6*together)
	assert.Equal(t, int64(len(records)), offsets[0]+offsets[1]+offsets[2])
	batch := b.model.NewBatch()
	for _, r := range records {
		require.NoError(t, batch.Add(r))
	}
}
