package workflow

import (
	"encoding/json"
	"slices"
	"time"
)

// Record is a row of the journal: the entries of one input and when it was taken.
type Record struct {
	At      time.Time
	Entries []Entry
}

// StepStatus is where a step of the history is.
type StepStatus string

// The statuses of steps. A skipped one ended because nobody needed it any more.
const (
	StepIsRunning   StepStatus = "RUNNING"
	StepIsCompleted StepStatus = "COMPLETED"
	StepIsFailed    StepStatus = "FAILED"
	StepIsSkipped   StepStatus = "SKIPPED"
)

// StepRun is a step of an instance's history: one time that a token was there, or one
// time that its compensation was begun.
type StepRun struct {
	// N is its number in the instance.
	N      int
	StepID string
	Type   StepType
	// Attempt counts the times that the step was entered (a compensation: begun), from 1.
	Attempt int
	Status  StepStatus
	BeganAt time.Time
	// EndedAt is zero while it runs.
	EndedAt time.Time
	// Output is its result, Failure why it failed.
	Output  json.RawMessage
	Failure *Failure
	// InDoubt is true when nobody knows whether it had an effect.
	InDoubt bool
	// Compensates is the number of the step that it undoes; 0: it is no compensation.
	Compensates int
	// Attempts counts the attempts at its activities: those of a FOREACH all together.
	Attempts int
}

// History folds a journal into the steps of the instance, in the order in which they
// began. The journal has to begin with the instance and may end anywhere.
func History(journal []Record) []StepRun {
	var steps []StepRun
	byNumber := make(map[int]int)
	for _, record := range journal {
		for _, e := range record.Entries {
			if e.Step == 0 {
				continue
			}
			at, seen := byNumber[e.Step]
			if !seen {
				at = len(steps)
				byNumber[e.Step] = at
				steps = append(steps, firstOf(e, record.At))
			}
			steps[at].take(e, record.At)
		}
	}
	slices.SortStableFunc(steps, func(a, b StepRun) int { return a.N - b.N })
	return steps
}

// firstOf is a step as its first entry shows it.
func firstOf(e Entry, at time.Time) StepRun {
	began := e.BeganAt
	if began.IsZero() {
		began = at
	}
	return StepRun{
		N: e.Step, StepID: e.StepID, Type: e.StepType, Attempt: e.StepAttempt, Status: StepIsRunning,
		BeganAt: began, Compensates: e.Compensates,
	}
}

func (s *StepRun) take(e Entry, at time.Time) {
	switch e.Kind {
	case StepCompleted:
		s.Status, s.EndedAt, s.Output = StepIsCompleted, at, e.Output
	case StepFailed:
		s.Status, s.EndedAt, s.Failure, s.InDoubt = StepIsFailed, at, e.Failure, e.InDoubt
	case StepSkipped:
		s.Status, s.EndedAt, s.InDoubt = StepIsSkipped, at, e.InDoubt
	case JobDispatched, UserTaskCreated:
		s.Attempts++
	default:
	}
}

// Current returns the ids of the steps where tokens are: those that are open, and the
// joins that wait for a branch. Each is named once, in the order of the steps.
func (p *Plan) Current(s State) []string {
	var ids []string
	add := func(id string) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for i := range s.Open {
		add(s.Open[i].StepID)
	}
	if !s.Status.Final() {
		for i := range s.Forks {
			if len(s.Forks[i].Arrived) > 0 {
				add(p.step(s.Forks[i].StepID).JoinStep)
			}
		}
	}
	return ids
}
