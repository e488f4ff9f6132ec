package store_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

func (b *bench) cancelled(change ...func(*topics.Request)) string {
	b.t.Helper()
	id := b.submit(request(change...))[0]
	_, err := b.Cancel(b.t.Context(), id, "ann", "")
	require.NoError(b.t, err)
	return id
}

func TestRerunIsANewExecutionWithTheSameRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	soon := time.Now().Add(time.Hour)
	old := b.cancelled(func(r *topics.Request) {
		r.User, r.Priority, r.Labels, r.IdempotencyKey, r.NotBefore = "ada", 5, map[string]string{"a": "b"}, "mine", &soon
	})
	results, err := b.Rerun(t.Context(), store.Rerun{IDs: []string{old}, By: "bob", Reason: "once more"})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	before, after := b.get(old), b.get(results[0].Execution.ID)
	assert.Equal(t, execution.Cancelled, before.State, "the old one is as it was")
	assert.Equal(t, execution.Requested, after.State)
	assert.Equal(t, "rerun", after.Request.Origin.Kind)
	assert.Equal(t, old, after.Request.Origin.RerunOf)
	assert.JSONEq(t, `{"by":"bob","reason":"once more"}`, string(after.Request.Origin.Metadata))
	assert.Nil(t, after.Request.NotBefore)
	same := after.Request
	same.Origin, same.NotBefore, same.IdempotencyKey = before.Request.Origin, before.Request.NotBefore, "mine"
	assert.Equal(t, before.Request, same, "the user's limits count for the user, not for who asked")

	results, err = b.Rerun(t.Context(), store.Rerun{IDs: []string{old}})
	require.NoError(t, err)
	assert.NotEqual(t, after.ID, results[0].Execution.ID, "without a key each call is another rerun")
}

func TestRerunsUnderOneKeyHappenOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := []string{b.cancelled(), b.cancelled()}
	order := store.Rerun{IDs: ids, Key: strings.Repeat("k", execution.MaxKeyBytes)}
	var all [4][]store.Submitted
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() {
			var err error
			all[i], err = b.Rerun(t.Context(), order)
			assert.NoError(t, err)
		})
	}
	callers.Wait()
	fresh := 0
	for _, results := range all {
		for i, r := range results {
			require.NoError(t, r.Err)
			assert.Equal(t, all[0][i].Execution.ID, r.Execution.ID)
			if !r.Replayed {
				fresh++
			}
		}
	}
	assert.Equal(t, len(ids), fresh)
	assert.NotEqual(t, all[0][0].Execution.ID, all[0][1].Execution.ID, "the key is one per execution")
}

func TestWhatCannotBeRerunDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running := b.submit(request())[0]
	foreign := b.cancelled(func(r *topics.Request) { r.Tenant = "acme" })
	ended := b.cancelled()
	results, err := b.Rerun(t.Context(), store.Rerun{
		IDs: []string{running, "not-an-id", foreign, "00000000-0000-7000-8000-000000000000", ended}, Tenant: "default",
	})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, store.ErrNotEnded)
	for _, r := range results[1:4] {
		require.ErrorIs(t, r.Err, store.ErrNotFound)
	}
	require.NoError(t, results[4].Err)
	assert.Equal(t, ended, results[4].Execution.Request.Origin.RerunOf)

	results, err = b.Rerun(t.Context(), store.Rerun{})
	require.NoError(t, err)
	assert.Empty(t, results)
}
