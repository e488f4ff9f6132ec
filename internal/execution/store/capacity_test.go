package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

func TestAnnounceWritesTheVector(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entry := store.Worker{
		ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 4,
		CPUMillis: 8000, MemoryBytes: 1 << 30, GPUs: 2,
	}
	read := func() (cpu, memory *int64, gpus int) {
		require.NoError(t, b.pool.QueryRow(t.Context(),
			`SELECT cpu_millis, memory_bytes, gpus FROM workers WHERE id = 'w'`).Scan(&cpu, &memory, &gpus))
		return cpu, memory, gpus
	}
	require.NoError(t, b.Announce(t.Context(), entry, time.Minute))
	cpu, memory, gpus := read()
	assert.EqualValues(t, 8000, *cpu)
	assert.EqualValues(t, 1<<30, *memory)
	assert.Equal(t, 2, gpus)

	entry.CPUMillis, entry.MemoryBytes, entry.GPUs = 0, 0, 0
	require.NoError(t, b.Announce(t.Context(), entry, time.Minute))
	cpu, memory, gpus = read()
	assert.Nil(t, cpu, "not counted")
	assert.Nil(t, memory, "not counted")
	assert.Zero(t, gpus, "none")
}

// scheduledWith makes a scheduled execution for each of the requirements, the first
// of which is the first to be claimed.
func (b *bench) scheduledWith(all ...topics.Requirements) []string {
	b.t.Helper()
	require.NoError(b.t, b.Announce(b.t.Context(), store.Worker{
		ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 100, GPUs: 100,
	}, time.Minute))
	ids := make([]string, len(all))
	for i, need := range all {
		ids[i] = b.submit(request(func(r *topics.Request) { r.Requirements = need }))[0]
		b.queue(ids[i])
	}
	b.admit(0)
	return ids
}

func TestClaimFitsTheVector(t *testing.T) {
	t.Parallel()
	const slots = 10
	one := topics.Requirements{CPUMillis: 1000}
	claim := func(c store.Claim) store.Claim {
		c.Worker, c.Classes, c.Executors, c.Lease = "w", []string{"default"}, []string{"process"}, time.Minute
		c.Slots = slots
		return c
	}
	for name, test := range map[string]struct {
		waiting []topics.Requirements
		room    store.Claim
		want    []int
	}{
		"cpu is used up": {[]topics.Requirements{one, one, one}, store.Claim{CPUMillis: new(int64(2500))}, []int{0, 1}},
		"no cpu is left, and what asks for none goes on": {
			[]topics.Requirements{one, {}}, store.Claim{CPUMillis: new(int64(0))}, []int{1},
		},
		"cpu is not counted": {[]topics.Requirements{one, {CPUMillis: 1_000_000}}, store.Claim{}, []int{0, 1}},
		"memory":             {[]topics.Requirements{{MemoryBytes: 6}, {MemoryBytes: 6}, {MemoryBytes: 4}}, store.Claim{MemoryBytes: new(int64(10))}, []int{0, 2}},
		"no gpus":            {[]topics.Requirements{{GPUs: 1}, {}}, store.Claim{}, []int{1}},
		"gpus":               {[]topics.Requirements{{GPUs: 1}, {GPUs: 2}, {GPUs: 1}}, store.Claim{GPUs: 2}, []int{0, 2}},
		"what never fits hides nothing behind it": {
			[]topics.Requirements{
				{GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {GPUs: 3},
				{GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {GPUs: 3}, {},
			},
			store.Claim{GPUs: 2}, []int{11},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ids := b.scheduledWith(test.waiting...)
			require.NoError(t, b.offerAll(t.Context()))
			claimed, err := b.Claim(t.Context(), claim(test.room))
			require.NoError(t, err)
			got := make([]string, len(claimed))
			for i, e := range claimed {
				got[i] = e.ID
			}
			want := make([]string, len(test.want))
			for i, n := range test.want {
				want[i] = ids[n]
			}
			assert.Equal(t, want, got)
		})
	}
}
