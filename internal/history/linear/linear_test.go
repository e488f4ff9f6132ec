package linear_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/history/linear"
)

const within = 20 * time.Second

// script is a history that is written down: each call with its time and that of the
// answer.
type script struct{ *linear.Recorder }

func write() script { return script{linear.NewRecorder()} }

func (s script) lease(call, answered int64, c linear.Call, a linear.Answer) {
	c.Execution = "e"
	s.Note(0, call, c, a, answered)
}

var accepted = linear.Answer{Outcome: linear.Accepted}

// running brings the execution into the hands of w1: at time 40.
func running() script {
	s := write()
	s.lease(0, 10, linear.Call{Kind: linear.Submit}, accepted)
	s.lease(11, 20, linear.Call{Kind: linear.Queue}, accepted)
	s.lease(21, 30, linear.Call{Kind: linear.Admit, Attempt: 1}, accepted)
	s.lease(31, 40, linear.Call{Kind: linear.Claim, Worker: "w1", Attempt: 1}, accepted)
	return s
}

func finish(worker string, attempt int) linear.Call {
	return linear.Call{Kind: linear.Finish, Worker: worker, Attempt: attempt, Leads: execution.Completed}
}

func handBack(worker string, attempt int) linear.Call {
	return linear.Call{Kind: linear.Finish, Worker: worker, Attempt: attempt, Leads: execution.Queued}
}

func expire(attempt int) linear.Call {
	return linear.Call{Kind: linear.Expire, Attempt: attempt, Leads: execution.Queued}
}

func TestSoundLeases(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(s script){
		"to its end": func(s script) { s.lease(50, 60, finish("w1", 1), accepted) },
		"finished and expired at the same time, the end first": func(s script) {
			s.lease(50, 90, finish("w1", 1), accepted)
			s.lease(100, 110, linear.Call{Kind: linear.Read}, linear.Answer{Outcome: linear.Accepted, State: execution.Completed, Attempt: 1})
		},
		"a stale report at the time of the expiry": func(s script) {
			s.lease(50, 90, expire(1), accepted)
			s.lease(60, 80, finish("w1", 1), linear.Answer{Outcome: linear.Stale})
		},
		"an unknown end that took effect": func(s script) {
			s.lease(50, 60, finish("w1", 1), linear.Answer{Outcome: linear.Unknown})
			s.lease(70, 80, finish("w1", 1), linear.Answer{Outcome: linear.Ended})
		},
		"an unknown end that did not": func(s script) {
			s.lease(50, 60, finish("w1", 1), linear.Answer{Outcome: linear.Unknown})
			s.lease(70, 80, expire(1), accepted)
			s.lease(81, 90, linear.Call{Kind: linear.Admit, Attempt: 2}, accepted)
		},
		"a cancel is delivered": func(s script) {
			s.lease(50, 60, linear.Call{Kind: linear.Cancel}, linear.Answer{Outcome: linear.Accepted, State: execution.Running, Attempt: 1})
			s.lease(61, 70, linear.Call{Kind: linear.Heartbeat, Worker: "w1", Attempt: 1}, linear.Answer{Outcome: linear.Accepted, Cancel: true})
		},
		"what is to stop is handed back": func(s script) {
			s.lease(50, 60, linear.Call{Kind: linear.Cancel}, linear.Answer{Outcome: linear.Accepted, State: execution.Running, Attempt: 1})
			s.lease(61, 70, handBack("w1", 1), accepted)
			s.lease(71, 80, linear.Call{Kind: linear.Read}, linear.Answer{Outcome: linear.Accepted, State: execution.Cancelled, Attempt: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := running()
			tell(s)
			require.NoError(t, linear.CheckLeases(s.Operations(), within))
		})
	}
}

func TestPlantedLeaseDefects(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(s script){
		"the attempt is not checked: a stale report is accepted": func(s script) {
			s.lease(50, 60, expire(1), accepted)
			s.lease(61, 70, linear.Call{Kind: linear.Admit, Attempt: 2}, accepted)
			s.lease(71, 80, linear.Call{Kind: linear.Claim, Worker: "w2", Attempt: 2}, accepted)
			s.lease(81, 90, finish("w1", 1), accepted)
		},
		"a report is accepted twice": func(s script) {
			s.lease(50, 60, finish("w1", 1), accepted)
			s.lease(55, 70, finish("w1", 1), accepted)
		},
		"two holders of one attempt": func(s script) {
			s.lease(35, 45, linear.Call{Kind: linear.Claim, Worker: "w2", Attempt: 1}, accepted)
		},
		"admitted twice": func(s script) {
			s.lease(22, 32, linear.Call{Kind: linear.Admit, Attempt: 1}, accepted)
		},
		"a heartbeat keeps what was taken away": func(s script) {
			s.lease(50, 60, expire(1), accepted)
			s.lease(61, 70, linear.Call{Kind: linear.Heartbeat, Worker: "w1", Attempt: 1}, accepted)
		},
		"the holder is told that it is none": func(s script) {
			s.lease(50, 60, finish("w1", 1), linear.Answer{Outcome: linear.Stale})
		},
		"the token goes back": func(s script) {
			s.lease(50, 60, expire(1), accepted)
			s.lease(61, 70, linear.Call{Kind: linear.Read}, linear.Answer{Outcome: linear.Accepted, State: execution.Queued, Attempt: 1})
		},
		"a cancel is forgotten": func(s script) {
			s.lease(50, 60, linear.Call{Kind: linear.Cancel}, linear.Answer{Outcome: linear.Accepted, State: execution.Running, Attempt: 1})
			s.lease(61, 70, linear.Call{Kind: linear.Heartbeat, Worker: "w1", Attempt: 1}, accepted)
		},
		"what is to stop is tried again": func(s script) {
			s.lease(50, 60, linear.Call{Kind: linear.Cancel}, linear.Answer{Outcome: linear.Accepted, State: execution.Running, Attempt: 1})
			s.lease(61, 70, handBack("w1", 1), accepted)
			s.lease(71, 80, linear.Call{Kind: linear.Admit, Attempt: 2}, accepted)
		},
		"life after the end": func(s script) {
			s.lease(50, 60, finish("w1", 1), accepted)
			s.lease(61, 70, linear.Call{Kind: linear.Read}, linear.Answer{Outcome: linear.Accepted, State: execution.Running, Attempt: 1, Worker: "w1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := running()
			tell(s)
			err := linear.CheckLeases(s.Operations(), within)
			require.Error(t, err)
			assert.ErrorContains(t, err, "no order explains")
		})
	}
}

func (s script) use(call, answered int64, u linear.Use, outcome linear.Outcome) {
	s.Note(0, call, u, linear.Told{Outcome: outcome}, answered)
}

func admit(token int64, executions map[string]int64) linear.Use {
	return linear.Use{Kind: linear.Admission, Token: token, Executions: executions}
}

func free(id string) linear.Use {
	return linear.Use{Kind: linear.Freed, Executions: map[string]int64{id: 0}}
}

// busy has two workers with 3 slots in all, of which a and b take 3: at time 30.
func busy() script {
	s := write()
	s.use(0, 10, linear.Use{Kind: linear.Announcement, Worker: "w1", Slots: 2}, linear.Accepted)
	s.use(0, 10, linear.Use{Kind: linear.Announcement, Worker: "w2", Slots: 1}, linear.Accepted)
	s.use(20, 30, admit(1, map[string]int64{"a": 2, "b": 1}), linear.Accepted)
	return s
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell func(s script)
		ok   bool
	}{
		"freed and taken again": {func(s script) {
			s.use(40, 50, free("a"), linear.Accepted)
			s.use(51, 60, admit(1, map[string]int64{"c": 1, "d": 1}), linear.Accepted)
		}, true},
		"taken while it was being freed": {func(s script) {
			s.use(40, 90, free("a"), linear.Accepted)
			s.use(45, 60, admit(1, map[string]int64{"c": 2}), linear.Accepted)
		}, true},
		"perhaps freed": {func(s script) {
			s.use(40, 50, free("a"), linear.Unknown)
			s.use(51, 60, admit(1, map[string]int64{"c": 2}), linear.Accepted)
		}, true},
		"a worker goes, and nothing more is let in": {func(s script) {
			s.use(40, 50, linear.Use{Kind: linear.Announcement, Worker: "w2"}, linear.Accepted)
			s.use(51, 60, free("a"), linear.Accepted)
			s.use(61, 70, admit(1, map[string]int64{"c": 1}), linear.Accepted)
		}, true},
		"too much": {func(s script) {
			s.use(51, 60, admit(1, map[string]int64{"c": 1}), linear.Accepted)
		}, false},
		"freed twice": {func(s script) {
			s.use(40, 50, free("a"), linear.Accepted)
			s.use(45, 55, free("a"), linear.Accepted)
		}, false},
		"admitted twice": {func(s script) {
			s.use(40, 50, free("a"), linear.Accepted)
			s.use(51, 60, admit(1, map[string]int64{"b": 1}), linear.Accepted)
		}, false},
		"a worker that went is counted": {func(s script) {
			s.use(40, 50, linear.Use{Kind: linear.Announcement, Worker: "w2"}, linear.Accepted)
			s.use(51, 60, free("a"), linear.Accepted)
			s.use(61, 70, admit(1, map[string]int64{"c": 2}), linear.Accepted)
		}, false},
		"a fenced admitter admits": {func(s script) {
			s.use(40, 50, free("a"), linear.Accepted)
			s.use(51, 60, admit(2, map[string]int64{"c": 1}), linear.Accepted)
			s.use(61, 70, admit(1, map[string]int64{"d": 1}), linear.Accepted)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := busy()
			c.tell(s)
			err := linear.CheckCapacity(s.Operations(), 0, within)
			if c.ok {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "no order explains")
			}
		})
	}
	t.Run("a limit below what the workers have", func(t *testing.T) {
		t.Parallel()
		require.Error(t, linear.CheckCapacity(busy().Operations(), 2, within))
	})
}
