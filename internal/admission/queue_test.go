package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/limits"
)

const step = 30 * time.Second

func slots(n int64) Resources { return Resources{Slots: n} }

func workers(slots ...int64) Capacity {
	var c Capacity
	for _, n := range slots {
		c.Workers = append(c.Workers, Worker{
			Resources: Resources{Slots: n, CPUMillis: Unlimited, MemoryBytes: Unlimited}, Executors: []string{"e", "f"},
		})
	}
	return c
}

// pooled has executors run things in one pool that the workers share.
func pooled(c Capacity, slots int64, executors ...string) Capacity {
	for i := range c.Workers {
		for _, executor := range executors {
			c.Workers[i].Pools = append(c.Workers[i].Pools, Pool{
				Executor: executor, Name: "cluster", Known: true, Resources: Resources{Slots: slots, CPUMillis: Unlimited, MemoryBytes: Unlimited},
			})
		}
	}
	return c
}

func compile(t require.TestingT, definitions ...limits.Definition) *limits.Set {
	set, err := limits.Compile(definitions)
	require.NoError(t, err)
	return set
}

func everyLimit(t require.TestingT) *limits.Set {
	return compile(t,
		limits.Definition{Name: "fast", Per: limits.PerUser, Rate: limits.Rate{Tokens: 5, Per: time.Second}},
		limits.Definition{Name: "slow", Per: limits.PerTenant, Rate: limits.Rate{Tokens: 1, Per: time.Minute}, Burst: 3},
		limits.Definition{Name: "few", Per: limits.PerTenant, Concurrency: 2},
		limits.Definition{Name: "both", Per: limits.PerTenant, Concurrency: 3, Rate: limits.Rate{Tokens: 2, Per: time.Second}},
	)
}

// Whatever happens, and in whatever order, what is chosen is what the plainest look at
// all that waits would choose, nothing is let through that may not be, and nothing is
// forgotten.
func TestChoosesAsAPlainListWould(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, world: newWorld(Config{
			Step: step, Limits: everyLimit(t), Overtake: rapid.SampledFrom([]time.Duration{0, time.Second, step}).Draw(t, "overtake"),
			Weight: func(_, user string) float64 { return map[string]float64{"u1": 2, "u2": 0.5}[user] + 0.25 },
		}, workers(4, 2))}
		t.Repeat(map[string]func(*rapid.T){
			"": m.invariant, "submit": m.someSubmit, "submit2": m.someSubmit, "round": m.someRound, "finish": m.someFinish,
			"cancel": m.someCancel, "move": m.someMove, "tick": m.tick, "hold": m.hold, "resize": m.resize, "busy": m.lock,
			"restart": func(*rapid.T) { m.restart() }, "forget": func(*rapid.T) { m.queue.Forget() },
		})
		m.settleAll()
	})
}

type model struct {
	*rapid.T
	*world
}

func (m *model) someSubmit(t *rapid.T) {
	user := fmt.Sprint("u", rapid.IntRange(0, 3).Draw(t, "user"))
	var keys []limits.Key
	for _, name := range []string{"both", "fast", "few", "slow"} {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			value := "t"
			if name == "fast" {
				value = user
			}
			keys = append(keys, limits.Key{Limit: name, Value: value})
		}
	}
	priority := rapid.IntRange(1, 5).Draw(t, "priority")
	m.executor = rapid.SampledFrom([]string{"e", "e", "f"}).Draw(t, "executor")
	for range rapid.SampledFrom([]int{1, 1, 3, 40}).Draw(t, "n") {
		m.submit(user, priority, slots(rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 5}).Draw(t, "slots")), keys...)
	}
}

func (m *model) some(t *rapid.T, state string) *work {
	all := m.of(state)
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(all).Draw(t, "one")
}

func (m *model) someFinish(t *rapid.T) { m.finish(m.some(t, "running")) }
func (m *model) someCancel(t *rapid.T) { m.cancel(m.some(t, "queued")) }
func (m *model) someMove(t *rapid.T) {
	m.move(m.some(t, "queued"), rapid.IntRange(1, 5).Draw(t, "priority"))
}

func (m *model) tick(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, 7 * time.Second, step}).Draw(t, "by"))
}

func (m *model) hold(t *rapid.T) {
	user := fmt.Sprint("u", rapid.IntRange(0, 3).Draw(t, "user"))
	m.held[user] = !m.held[user]
}

func (m *model) resize(t *rapid.T) {
	m.cap = rapid.SampledFrom([]Capacity{
		workers(), workers(1), workers(4, 2), workers(5, 5), pooled(workers(5, 5), 3, "f"), pooled(workers(4, 4), 0, "f"),
		pooled(workers(4, 4), 5, "e", "f"),
	}).Draw(t, "capacity")
}

func (m *model) lock(t *rapid.T) {
	x := m.some(t, "queued")
	m.busy[x.ID] = !m.busy[x.ID]
}

func (m *model) someRound(t *rapid.T) {
	m.round(rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "max"), m.judge)
}

// describe tells where the queue has the flow of x.
func (m *model) describe(x *work) string {
	l := m.queue.flows[x.flow.ID]
	at := ""
	if l.blocker != nil {
		at = fmt.Sprintf("%+v opens at %s", l.blocker.Bucket, l.blocker.opensAt)
	}
	return fmt.Sprintf("now %s band %d aside %t complete %t items %d cursor %v keys %v blocker %s history %d",
		m.now, l.band, l.aside, l.complete, len(l.items), l.cursor, l.Keys, at, len(m.history))
}

// admissible are the first of each flow that nothing but room could keep.
func (m *model) admissible() []*work {
	first := map[FlowID]*work{}
	for _, x := range m.of("queued") {
		if f := first[x.flow.ID]; f == nil || x.before(f.Place) {
			first[x.flow.ID] = x
		}
	}
	var found []*work
	for _, x := range first {
		if !m.held[x.flow.User] && !m.shut(x.flow) && m.cap.Offers(x.flow.Executor) {
			found = append(found, x)
		}
	}
	return found
}

// band is what x counts as: its priority, and one more for each step that it has
// waited and nothing of its user and priority was let through.
func (m *model) band(x *work) int {
	since := x.Ready
	if at := m.served[turnName{x.flow.User, x.flow.Priority}]; at.After(since) {
		since = at
	}
	return min(x.flow.Priority-1+int(max(m.now.Sub(since)/step, 0)), 4)
}

func (m *model) share(user string) float64 {
	var n int64
	for _, x := range m.of("running") {
		if x.flow.User == user {
			n += x.Need[Slots]
		}
	}
	return float64(n) / float64(m.cap.Total()[Slots]) / m.cfg.Weight("t", user)
}

// full reports whether the room of its executor keeps x waiting: because it needs more than
// is free, or because that is kept for another one.
func (m *model) full(x *work) bool {
	return slices.ContainsFunc(m.admissible(), func(other *work) bool {
		return other.flow.Executor == x.flow.Executor && !m.fits(other.flow.Executor, other.Need) &&
			(other == x || m.now.Sub(other.Ready) >= m.cfg.Overtake)
	})
}

// judge looks at a choice before it counts.
func (m *model) judge(x *work) {
	require.False(m, m.held[x.flow.User], "held")
	require.False(m, m.shut(x.flow), "limited")
	free := m.cap.Total().Minus(m.used())
	require.True(m, free.Holds(x.Need), "no room")
	require.True(m, m.cap.Servable(x.flow.Executor, x.Need), "no worker for it")
	require.True(m, m.fits(x.flow.Executor, x.Need), "no room for its executor")
	if !m.clean {
		return
	}
	for _, other := range m.admissible() {
		if other == x || !m.cap.Servable(other.flow.Executor, other.Need) || !free.Holds(other.Need) || m.full(other) {
			continue
		}
		require.LessOrEqual(m, m.band(other), m.band(x), "%s is of a higher band than %s: %s", other.ID, x.ID, m.describe(other))
		if mine, theirs := m.share(x.flow.User), m.share(other.flow.User); m.band(other) == m.band(x) && theirs < mine-1e-9 {
			require.Less(m, mine, 1/m.queue.weighed, "%s has less, and %s what is due: %s", other.flow.User, x.flow.User, m.describe(other))
		}
		if m.band(other) == m.band(x) && other.flow.User == x.flow.User {
			require.False(m, other.before(x.Place), "%s comes before %s: %s", other.ID, x.ID, m.describe(other))
		}
	}
	for _, other := range m.admissible() {
		if !m.cap.Servable(other.flow.Executor, other.Need) || m.now.Sub(other.Ready) < m.cfg.Overtake {
			continue
		}
		// Room of the class is kept for what has room in its executor, that of an executor for its own.
		keepsClass := !free.Holds(other.Need) && !m.full(other)
		keepsExecutor := other.flow.Executor == x.flow.Executor && !m.fits(x.flow.Executor, other.Need)
		if !keepsClass && !keepsExecutor {
			continue
		}
		require.LessOrEqual(m, m.band(other), m.band(x), "%s has let others pass for long enough", other.ID)
	}
}

// invariant compares the books with what there is.
func (m *model) invariant(*rapid.T) {
	queued, running := map[FlowID]int64{}, map[FlowID]int64{}
	for _, l := range m.queue.flows {
		queued[l.ID], running[l.ID] = l.queued, l.running
	}
	for _, d := range m.feed {
		queued[d.Flow] += d.Queued
		running[d.Flow] += d.Running
	}
	for _, x := range m.works {
		switch x.state {
		case "queued", "large":
			queued[x.flow.ID]--
		case "running":
			running[x.flow.ID]--
		}
	}
	for id := range m.flows {
		require.Zero(m, queued[id], "the books have a different number queued")
		require.Zero(m, running[id], "the books have a different number running")
	}
}

// settleAll lets everything go on until nothing is left, which it must be.
func (m *model) settleAll() {
	m.held, m.busy = map[string]bool{}, map[string]bool{}
	m.cap = workers(5, 5)
	for range 100_000 {
		for m.round(100, m.judge) {
		}
		if len(m.of("queued")) == 0 && len(m.feed) == 0 {
			break
		}
		running := m.of("running")
		for _, x := range running {
			m.finish(x)
		}
		if len(running) == 0 {
			m.now = m.now.Add(max(m.queue.NextAt().Sub(m.now), time.Millisecond))
		}
	}
	require.Empty(m, m.of("queued"), "forgotten")
	require.Empty(m, m.of("large"), "forgotten for its size")
}

// With everybody always waiting, each user gets a part by weight, within one.
func TestSharesByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		users := rapid.IntRange(2, 6).Draw(t, "users")
		weights := map[string]float64{}
		for i := range users {
			weights[fmt.Sprint("u", i)] = float64(rapid.IntRange(1, 8).Draw(t, "weight"))
		}
		places := rapid.Int64Range(1, 3).Draw(t, "slots")
		w := newWorld(Config{Step: step, Weight: func(_, user string) float64 { return weights[user] }}, workers(places))
		for i := range users {
			for range 200 {
				w.submit(fmt.Sprint("u", i), 3, slots(1))
			}
		}
		got := map[string]float64{}
		for range 60 {
			w.round(int(places), nil)
			for _, x := range w.of("running") {
				got[x.flow.User]++
				w.finish(x)
			}
		}
		for a, n := range got {
			for b, m := range got {
				// Those who hold the same are told apart by what they got; within a round
				// of several places one more each may be held.
				slack := float64(places)/weights[a] + float64(places)/weights[b]
				require.LessOrEqual(t, n/weights[a]-m/weights[b], slack+1e-9, "%s:%v %s:%v of %v", a, n, b, m, weights)
			}
		}
	})
}

// A stream of the most urgent never keeps the least urgent for longer than four
// steps.
func TestAgeingBound(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step}, workers(1))
	last := w.submit("old", 1, slots(1))
	submitted := w.now
	for last.state == "queued" {
		for range 3 { // more than there is room for
			w.submit("urgent", 5, slots(1))
		}
		w.round(10, nil)
		for _, x := range w.of("running") {
			w.finish(x)
		}
		w.now = w.now.Add(time.Second)
		require.LessOrEqual(t, w.now.Sub(submitted), 4*step+2*time.Second)
	}
	assert.Equal(t, "aged", last.reason)
}

// One user's flood does not keep another's few.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step}, workers(4))
	for range 500 {
		w.submit("noisy", 3, slots(1))
	}
	w.round(10, nil)
	var few []*work
	for range 10 {
		few = append(few, w.submit("quiet", 3, slots(1)))
	}
	before := len(w.history)
	for range 10 {
		for _, x := range w.of("running") {
			w.finish(x)
		}
		w.round(10, nil)
	}
	for _, x := range few {
		assert.NotEqual(t, "queued", x.state)
	}
	noisy := 0
	for _, x := range w.history[before:] {
		if x == few[9] {
			break
		}
		if x.flow.User == "noisy" {
			noisy++
		}
	}
	assert.LessOrEqual(t, noisy, 11, "in turns")
}

// What sleeps at a limit is not looked at, however much it is.
func TestALimitedKeyCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	set := compile(t, limits.Definition{Name: "l", Per: limits.PerTenant, Rate: limits.Rate{Tokens: 1, Per: time.Hour}})
	w := newWorld(Config{Step: step, Limits: set}, workers(100))
	for i := range 300 {
		w.submit(fmt.Sprint("limited", i), 5, slots(1), limits.Key{Limit: "l", Value: "t"})
	}
	w.round(1000, nil)
	require.Len(t, w.history, 1)
	free := w.submit("free", 1, slots(1))
	w.round(1000, nil)
	assert.Equal(t, "running", free.state)
	assert.Empty(t, w.queue.bands[4].items, "all flows but one sleep")
	assert.Equal(t, w.now.Add(time.Hour), w.queue.NextAt())

	w.now = w.now.Add(time.Hour)
	w.round(1000, nil)
	assert.Len(t, w.history, 3, "one token, one more")
}

// A flood that is being served does not get ahead of others by its age.
func TestAnOldFloodTakesNobodysTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step}, workers(4))
	for range 2000 {
		w.submit("noisy", 3, slots(1))
	}
	second := func() {
		for _, x := range w.of("running") {
			w.finish(x)
		}
		w.round(10, nil)
		w.now = w.now.Add(time.Second)
	}
	for w.now.Sub(w.works[0].Ready) < 5*step {
		second()
	}
	one := w.submit("quiet", 3, slots(1))
	second()
	assert.Equal(t, "running", one.state)
	urgent := w.submit("noisy", 5, slots(4))
	second()
	assert.Equal(t, "running", urgent.state, "nor ahead of what is more urgent of the same user")
}

// What is passed over rises, and falls back once it was its turn.
func TestWhatWasServedBeginsToWaitAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step}, workers(1))
	for range 10 {
		w.submit("low", 1, slots(1))
	}
	low := 0
	began := w.now
	for w.now.Sub(began) < 20*step {
		for range 2 {
			w.submit("urgent", 5, slots(1))
		}
		w.round(1, nil)
		for _, x := range w.of("running") {
			if x.flow.User == "low" {
				low++
			}
			w.finish(x)
		}
		w.now = w.now.Add(time.Second)
	}
	assert.InDelta(t, 5, low, 1, "one for every four steps, and not a stream of them")
}

// One that fits into no gap lets smaller ones pass for a while, and then no more.
func TestRoomIsKeptForTheLargeInTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Step: step, Overtake: step}, workers(2))
	w.submit("a", 3, slots(1))
	w.round(10, nil)
	large := w.submit("b", 4, slots(2))
	small := w.submit("c", 3, slots(1))
	w.round(10, nil)
	assert.Equal(t, "queued", large.state)
	assert.Equal(t, "passed_waiting_larger", small.reason)
	w.finish(small)
	w.now = w.now.Add(step)
	later := w.submit("c", 5, slots(1))
	w.submit("a", 5, slots(1))
	w.now = w.now.Add(4 * step) // all are of the highest band
	w.round(10, nil)
	assert.Equal(t, "queued", large.state)
	assert.Equal(t, "queued", later.state, "room is kept")
	w.finish(w.history[0])
	w.round(10, nil)
	assert.Equal(t, "running", large.state)
}

func TestResources(t *testing.T) {
	t.Parallel()
	c := Capacity{Workers: []Worker{
		{Resources: Resources{Slots: 4, CPUMillis: Unlimited, MemoryBytes: 8, GPUs: 1}, Executors: []string{"e"}},
		{Resources: Resources{Slots: 2, CPUMillis: 500, MemoryBytes: 2}, Executors: []string{"f"}},
	}, Cap: Resources{MemoryBytes: 9}}
	assert.Equal(t, Resources{Slots: 6, CPUMillis: Unlimited, MemoryBytes: 9, GPUs: 1}, c.Total())
	assert.True(t, c.Servable("e", Resources{Slots: 4, CPUMillis: 1e9, MemoryBytes: 8, GPUs: 1}))
	assert.False(t, c.Servable("e", Resources{Slots: 5}), "two workers are not one")
	assert.False(t, c.Servable("f", Resources{Slots: 1, GPUs: 1}))
	assert.False(t, c.Servable("g", Resources{Slots: 1}))
	assert.EqualValues(t, Unlimited, c.Total().Minus(Resources{CPUMillis: 7})[CPUMillis], "what is not counted is not used up")
}

func TestFlowIDs(t *testing.T) {
	t.Parallel()
	seen := map[FlowID]bool{}
	for _, l := range []Flow{
		NewFlow("c", "t", "u", "e", 3, nil), NewFlow("c", "tu", "", "e", 3, nil), NewFlow("c", "t", "ue", "", 3, nil),
		NewFlow("c", "t", "u", "e", 3, []limits.Key{{Limit: "a", Value: "b"}}), NewFlow("c", "t", "u", "e", 3, []limits.Key{{Limit: "ab"}}),
	} {
		assert.False(t, seen[l.ID], "%+v", l)
		seen[l.ID] = true
	}
	// Rows of before flows were given the same ids by SQL.
	assert.Equal(t, "043e32e3-d672-3ecb-4ffa-737afe4321bc", NewFlow("default", "default", "anonymous", "process", 3, nil).ID.String())
}
