package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/topics"
)

func at(ms int) time.Time {
	return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// tale tells the life of one execution, event by event.
type tale struct {
	*history.Life
	attempt int
}

var states = map[string]execution.State{
	history.Requested: execution.Requested, history.Queued: execution.Queued, history.Requeued: execution.Queued,
	history.Scheduled: execution.Scheduled, history.Started: execution.Running, history.Completed: execution.Completed,
	history.Cancelled: execution.Cancelled, history.Rejected: execution.Rejected,
}

// tell begins a life that is requested and queued at that time.
func tell(id string, ms int, change ...func(*topics.Request)) *tale {
	req := topics.Request{Tenant: "acme", User: "ada", Executor: "process", ResourceClass: "default", Priority: 3}
	for _, f := range change {
		f(&req)
	}
	t := &tale{Life: &history.Life{ID: id, Request: req}}
	return t.then(history.Requested, ms).then(history.Queued, ms)
}

// then adds an event, and the task to an admission.
func (t *tale) then(kind string, ms int) *tale {
	if kind == history.Queued || kind == history.Requeued {
		t.attempt++
	}
	e := history.Event{
		Type: kind, ID: fmt.Sprintf("%s-%d", t.ID, len(t.Events)+1), Sequence: int64(len(t.Events) + 1), At: at(ms),
		Details: history.Details{Attempt: t.attempt, ReadyAt: at(ms)},
	}
	t.Events = append(t.Events, e)
	if kind == history.Scheduled {
		t.Tasks = append(t.Tasks, history.Event{Type: history.Task, ID: e.ID + "t", At: e.At, Details: history.Details{Attempt: t.attempt}})
	}
	if s, ok := states[kind]; ok {
		t.State = s
	}
	t.Version, t.Attempt = e.Sequence, t.attempt
	return t
}

// run adds a whole attempt that is admitted and ends well.
func (t *tale) run(from, to int) *tale {
	return t.then(history.Scheduled, from).then(history.Started, from+1).then(history.Completed, to)
}

func chapters(tales ...*tale) history.History {
	var h history.History
	for _, t := range tales {
		h.Lives = append(h.Lives, t.Life)
	}
	return h
}

func keyed(key string) func(*topics.Request) {
	return func(r *topics.Request) { r.ConcurrencyKey = key }
}

func slots(n int) func(*topics.Request) {
	return func(r *topics.Request) { r.Requirements.Slots = n }
}

func (t *tale) place(n int64) *tale {
	t.Place = n
	return t
}

// strict judges everything.
func strict() history.Rules {
	return history.Rules{
		Capacity: map[string]history.Resources{"default": {Slots: 2}},
		Limits: []history.Limit{
			{Name: "starts", Key: byUser, Every: 100 * time.Millisecond, Burst: 2},
			{Name: "at_once", Key: byUser, Concurrency: 2},
		},
		PassedOver: 50 * time.Millisecond, Settled: true,
	}
}

func byUser(l *history.Life) (string, bool) { return l.Request.User, l.Request.User != "free" }

func TestSoundHistory(t *testing.T) {
	t.Parallel()
	retried := tell("d", 0)
	retried.then(history.Scheduled, 400).then(history.Started, 401).then(history.Requeued, 410).run(600, 700)
	assert.Empty(t, history.Judge(chapters(
		tell("a", 0).run(1, 100),
		tell("b", 0).run(2, 300),
		tell("c", 0).run(110, 200), // takes what a left
		retried,
		tell("e", 0).then(history.Cancelled, 5),
		tell("k1", 0, keyed("k"), func(r *topics.Request) { r.User = "free" }).place(1).run(800, 810),
		tell("k2", 0, keyed("k"), func(r *topics.Request) { r.User = "free" }).place(2).run(810, 820),
	), strict()))
}

// Each defect is planted into a sound history and found as what it is.
func TestPlantedDefectsAreFound(t *testing.T) {
	t.Parallel()
	other := func(r *topics.Request) { r.User = "free" }
	for name, c := range map[string]struct {
		check string
		tales []*tale
	}{
		"admitted twice for one attempt": {"once", []*tale{
			tell("a", 0).then(history.Scheduled, 1).then(history.Scheduled, 2).then(history.Started, 3).then(history.Completed, 4),
		}},
		"started twice": {"once", []*tale{
			tell("a", 0).then(history.Scheduled, 1).then(history.Started, 2).then(history.Started, 3).then(history.Completed, 4),
		}},
		"a task too many": {"once", []*tale{func() *tale {
			x := tell("a", 0).run(1, 2)
			x.Tasks = append(x.Tasks, history.Event{Type: history.Task, ID: "again", At: at(2), Details: history.Details{Attempt: 1}})
			return x
		}()}},
		"no task": {"once", []*tale{func() *tale {
			x := tell("a", 0).then(history.Scheduled, 1).then(history.Started, 2).then(history.Requeued, 3).run(4, 5)
			x.Tasks = x.Tasks[1:]
			return x
		}()}},
		"a stale report is taken": {"once", []*tale{func() *tale {
			x := tell("a", 0).then(history.Scheduled, 1).then(history.Started, 2).then(history.Requeued, 3).run(4, 5)
			x.Events[len(x.Events)-1].Attempt = 1
			return x
		}()}},
		"an event is missing": {"sequence", []*tale{func() *tale {
			x := tell("a", 0).run(1, 2)
			x.Events = append(x.Events[:2:2], x.Events[3:]...)
			return x
		}()}},
		"two events of one change": {"sequence", []*tale{func() *tale {
			x := tell("a", 0).run(1, 2)
			twin := x.Events[4]
			twin.ID = "twin"
			x.Events = append(x.Events, twin)
			return x
		}()}},
		"something after the end": {"sequence", []*tale{tell("a", 0).run(1, 2).then(history.Completed, 3)}},
		"the row says otherwise": {"state", []*tale{func() *tale {
			x := tell("a", 0).run(1, 2)
			x.State = execution.Cancelled
			return x
		}()}},
		"events without a row": {"state", []*tale{func() *tale {
			x := tell("a", 0).run(1, 2)
			x.State = ""
			return x
		}()}},
		"forgotten": {"forgotten", []*tale{tell("a", 0)}},
		"more than there is": {"capacity", []*tale{
			tell("a", 0, other).run(1, 100), tell("b", 0, other).run(2, 100), tell("c", 0, other).run(99, 120),
		}},
		"more slots than there are": {"capacity", []*tale{tell("a", 0, other, slots(2)).run(1, 100), tell("b", 0, other).run(2, 100)}},
		"too many tokens":           {"rate", []*tale{tell("a", 0).run(1, 2), tell("b", 0).run(3, 4), tell("c", 0).run(90, 91)}},
		"too many tokens after a pause": {"rate", []*tale{
			tell("a", 0).run(1, 2), tell("b", 0).run(1000, 1001), tell("c", 0).run(1002, 1003), tell("d", 0).run(1050, 1051),
		}},
		"too many of a user": {"concurrency", []*tale{
			tell("a", 0).run(1, 500), tell("b", 0).run(200, 500), tell("c", 0).run(300, 500),
		}},
		"two of one key": {"key", []*tale{
			tell("a", 0, other, keyed("k")).place(1).run(1, 10), tell("b", 0, other, keyed("k")).place(2).run(9, 20),
		}},
		"a key out of order": {"key", []*tale{
			tell("a", 0, other, keyed("k")).place(1).run(30, 40), tell("b", 0, other, keyed("k")).place(2).run(1, 20),
		}},
		"a key ahead of one that never ends": {"key", []*tale{
			tell("a", 0, other, keyed("k")).place(1), tell("b", 0, other, keyed("k")).place(2).run(1, 20),
		}},
		"a retry after the next of its key": {"key", []*tale{
			tell("a", 0, other, keyed("k")).place(1).then(history.Scheduled, 1).then(history.Started, 2).then(history.Requeued, 3).run(30, 40),
			tell("b", 0, other, keyed("k")).place(2).run(5, 20),
		}},
		"passed over":          {"order", []*tale{tell("a", 0, other).run(300, 310), tell("b", 100, other).run(200, 210)}},
		"passed over for ever": {"order", []*tale{tell("a", 0, other), tell("b", 100, other).run(200, 210)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := history.Judge(chapters(c.tales...), strict())
			require.NotEmpty(t, found)
			checks := map[string]bool{}
			for _, v := range found {
				checks[v.Check] = true
			}
			assert.Contains(t, checks, c.check, "%v", found)
		})
	}
}

// What looks wrong and is not.
func TestWhatIsAllowed(t *testing.T) {
	t.Parallel()
	other := func(r *topics.Request) { r.User = "free" }
	urgent := func(r *topics.Request) { r.Priority = 5; r.User = "free" }
	for name, tales := range map[string][]*tale{
		"taken at the very moment at which it was free": {
			tell("a", 0, other, slots(2)).run(1, 10), tell("b", 0, other, slots(2)).run(10, 20),
		},
		"held for no time":             {tell("a", 0, other, slots(2)).run(1, 10), tell("b", 0, other).then(history.Scheduled, 5).then(history.Cancelled, 5)},
		"exactly the rate":             {tell("a", 0).run(0, 1), tell("b", 0).run(0, 1), tell("c", 0).run(100, 101), tell("d", 0).run(200, 201)},
		"the urgent first":             {tell("a", 0, other).run(300, 310), tell("b", 1, urgent).run(200, 210)},
		"the first is held up a bit":   {tell("a", 0, other).run(240, 310), tell("b", 100, other).run(200, 210)},
		"another class is not bounded": {tell("a", 0, other, slots(9), func(r *topics.Request) { r.ResourceClass = "gpu" }).run(1, 10)},
		"a key whose first was cancelled": {
			tell("a", 0, other, keyed("k")).place(1).then(history.Cancelled, 4), tell("b", 0, other, keyed("k")).place(2).run(4, 20),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Empty(t, history.Judge(chapters(tales...), strict()))
		})
	}
}

func TestRejectedAtQueueing(t *testing.T) {
	t.Parallel()
	limit := history.Limit{Name: "asks", Key: byUser, Every: time.Second, Burst: 1, AtQueue: true}
	refused := &tale{Life: &history.Life{ID: "b", Request: topics.Request{User: "ada"}}}
	refused.then(history.Requested, 1).then(history.Rejected, 1)
	sound := chapters(tell("a", 0).run(1, 2), refused)
	assert.Empty(t, history.Judge(sound, history.Rules{Limits: []history.Limit{limit}, Settled: true}))
	found := history.Judge(chapters(tell("a", 0).run(1, 2), tell("b", 900).run(901, 902)), history.Rules{Limits: []history.Limit{limit}})
	require.Len(t, found, 1)
	assert.Equal(t, "rate", found[0].Check)
	assert.Contains(t, history.Summary(found, 1), `asks of "ada"`)
}

func TestPurgedHistory(t *testing.T) {
	t.Parallel()
	x := tell("a", 0).run(1, 2)
	x.Events = x.Events[2:]
	gone := tell("b", 0).run(1, 2)
	gone.Events, gone.Tasks = nil, nil
	assert.Empty(t, history.Judge(chapters(x, gone), history.Rules{Purged: true}))
	assert.NotEmpty(t, history.Judge(chapters(x), history.Rules{}))
}

func TestPeaks(t *testing.T) {
	t.Parallel()
	peaks := history.Peaks(chapters(tell("a", 0).run(1, 10), tell("b", 0, slots(3)).run(5, 20), tell("c", 0).run(10, 20)))
	assert.Equal(t, int64(4), peaks["default"].Slots)
}
