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

func needs(r topics.Requirements) func(*topics.Request) {
	return func(q *topics.Request) { q.Requirements = r }
}

// Of each resource no more is admitted than the workers of the class have in all, and
// what has ended makes room.
func TestAdmissionCountsEveryResource(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, test := range map[string]struct {
		worker store.Worker
		need   topics.Requirements
		fit    int
	}{
		"memory":                 {store.Worker{MemoryBytes: 5 * gib}, topics.Requirements{MemoryBytes: 2 * gib}, 2},
		"cpu":                    {store.Worker{CPUMillis: 2500}, topics.Requirements{CPUMillis: 500}, 5},
		"gpus":                   {store.Worker{GPUs: 1}, topics.Requirements{GPUs: 1}, 1},
		"slots":                  {store.Worker{}, topics.Requirements{Slots: 3}, 3},
		"memory that is counted": {store.Worker{MemoryBytes: gib, CPUMillis: 1000}, topics.Requirements{CPUMillis: 1}, 6},
		"nothing is counted":     {store.Worker{}, topics.Requirements{CPUMillis: 1_000_000, MemoryBytes: 1000 * gib}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := test.worker
			w.ID, w.Classes, w.Executors, w.Slots = "w", []string{"default"}, []string{"process"}, 10
			require.NoError(t, b.Announce(t.Context(), w, time.Hour))
			ids := b.submitN(6, needs(test.need))
			b.queue(ids...)
			memory := &store.Memory{}
			again := func() int {
				return b.admitted(round(func(a *store.Admission) { a.Memory = memory })).Executions
			}
			require.Equal(t, test.fit, again())
			require.Zero(t, again(), "nothing has ended")
			b.balanced()
			if test.fit == 6 {
				return
			}
			_, err := b.Cancel(t.Context(), ids[0], "ann", "")
			require.NoError(t, err)
			assert.Equal(t, 1, again(), "what has ended makes room for one")
			b.balanced()
		})
	}
}

// What waits for memory does not keep those waiting who need none, and no worker is
// ever asked for more than it has.
func TestWhatFitsIntoNoWorkerIsNotAdmitted(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	b := setup(t)
	for _, id := range []string{"a", "b"} {
		require.NoError(t, b.Announce(t.Context(), store.Worker{
			ID: id, Classes: []string{"default"}, Executors: []string{"process"}, Slots: 10, MemoryBytes: gib,
		}, time.Hour))
	}
	large := b.submitN(2, needs(topics.Requirements{MemoryBytes: 2 * gib}))
	b.queue(large...)
	b.queue(b.submitN(2)...)
	memory := &store.Memory{}
	again := func() int { return b.admitted(round(func(a *store.Admission) { a.Memory = memory })).Executions }
	require.Equal(t, 2, again(), "two workers have as much between them, and neither has it")
	assert.Equal(t, 2, b.count(`waits = 3`))
	require.NoError(t, b.Announce(t.Context(), store.Worker{
		ID: "c", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 10, MemoryBytes: 2 * gib,
	}, time.Hour))
	require.Equal(t, 2, again(), "4 GiB in all, and a worker that can take one after the other")
	b.balanced()
	require.NoError(t, b.offerAll(t.Context()))
	claim := func(worker string, free int64) []string {
		claimed, err := b.Claim(t.Context(), store.Claim{
			Worker: worker, Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Minute, Slots: 10, MemoryBytes: &free,
		})
		require.NoError(t, err)
		var ids []string
		for _, e := range claimed {
			if e.Request.Requirements.MemoryBytes > 0 {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
	assert.Empty(t, claim("a", gib))
	assert.Len(t, claim("c", 2*gib), 1)
	assert.Len(t, claim("c", 2*gib), 1, "when the first has ended")
}
