package execution

import (
	"math"
	"time"

	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/topics"
)

// Situation is what an execution waits among, as it was at one moment. Amounts of
// resources that nobody counts are 0.
type Situation struct {
	Execution *Execution
	Now       time.Time

	// Holds are those that keep it from being admitted.
	Holds []Hold

	// Admitter is who lets executions of its class through.
	Admitter Admitter

	// Pod is what a running execution runs in; the zero value if that is no pod.
	Pod Pod

	// Workers is how many workers of its resource class are alive, and Executors are
	// those that they offer.
	Workers   int
	Executors []string
	// Total is what these workers have together, and Largest the most of each that one
	// of them has.
	Total, Largest topics.Requirements
	// Servable says whether one of them has everything that it needs.
	Servable bool
	// Cap is how much of the class may be in use at once, beyond what the workers have;
	// 0: as much as they have.
	Cap topics.Requirements
	// Pool is where its executor runs things, if that is not the workers' own room.
	Pool Pool
	// Used is what the scheduled and running executions of the class hold, and UserUsed
	// what those of its user hold.
	Used, UserUsed topics.Requirements

	// Predecessors is how many executions with the same concurrency key come
	// first, and Predecessor the one whose turn it is.
	Predecessors int
	Predecessor  Neighbour

	// Limits are those that let nothing through at the moment.
	Limits []Exhausted

	// Ahead are those that are to be admitted first, and Next is the first of them.
	Ahead Ahead
	Next  Neighbour
	// Overtake is how long one that fits into no gap lets others pass.
	Overtake time.Duration
	// Rate is how many executions of the class were admitted per second lately; 0 when
	// that is not known.
	Rate float64
}

// Pod is what has become of a pod.
type Pod struct {
	Namespace, Name string
	// Node is where it runs, if it was given one.
	Node string
	// Phase is what it has come to, and At when.
	Phase pods.Phase
	At    time.Time
}

// Pool is room that workers share, in a cluster for example.
type Pool struct {
	// Names are those of the pools in which the executor runs things; empty if there is
	// none.
	Names []string
	// Known is false as long as no worker has found out how much room there is.
	Known bool
	// Total is how much the executor may use at once, and Used is what it does.
	Total, Used topics.Requirements
}

// String names the pools.
func (p Pool) String() string {
	return plural(len(p.Names), "the pool ", "the pools ") + list(p.Names)
}

// Hold keeps executions from being admitted.
type Hold struct {
	// What names what is held, such as: the resource class "gpu".
	What string
	// Resume is the command that lifts it.
	Resume     string
	By, Reason string
	Since      time.Time
}

// Admitter is the coordinator that admits executions of a class.
type Admitter struct {
	// Absent is true while there is none.
	Absent bool
	// Last is the latest there was, and Until when its lease ended; empty where there
	// never was one.
	Last  string
	Until time.Time
}

// Exhausted is a limit that lets nothing through for a key.
type Exhausted struct {
	// Name is the limit's, and Key what it is counted by.
	Name, Key string
	// Rate says how many it lets through in which time, such as "10/1m"; empty when it
	// limits how many are in use at once.
	Rate string
	// InUse is how many of the key are scheduled or running, of Concurrency.
	InUse, Concurrency int
	// Next is when the next token comes, and Turn about when the one for this execution
	// does; of a rate.
	Next, Turn time.Time
	// Before is how many executions of the same key go first, at most AheadMax.
	Before int
}

// AheadMax is how far executions are counted.
const AheadMax = 10_000

// Ahead counts the executions that go first, each number to AheadMax at most.
type Ahead struct {
	// Higher are those of other users with a higher priority.
	Higher int
	// Own are those of the same user that come first, and Others about those of other
	// users with the same priority (Turns).
	Own, Others int
	// Rivals is the weight of all other users of whom something waits, measured by that
	// of its user.
	Rivals float64
}

// Count returns about how many go first, at most AheadMax.
func (a Ahead) Count() int { return min(a.Higher+a.Own+a.Others, AheadMax) }

// Party is a user of whom something waits.
type Party struct {
	// Weight is what the user's share is measured by.
	Weight float64
	// Share is the largest part of any one resource of the class that the user holds.
	Share float64
	// Queued is how many executions of the user wait.
	Queued int
}

// Turns returns about how many executions of others are admitted before one of a user
// of whom own others come first, where each takes the part cost of the class: those
// who hold less, by weight, catch up first, and then all take turns by weight. So many
// of one user do not go before the few of another.
func Turns(own int, user Party, cost float64, others []Party) int {
	sum := 0.0
	for _, o := range others {
		weight := o.Weight / user.Weight
		turns := (float64(own)+0.5)*weight + (user.Share*weight-o.Share)/cost
		sum += min(max(turns, 0), float64(o.Queued))
	}
	return int(min(math.Round(sum), AheadMax))
}

// Neighbour is another execution.
type Neighbour struct {
	ID    string
	State State
	Needs topics.Requirements
	// Ready is since when it might be admitted.
	Ready time.Time
}

// capacity returns what may be in use at once.
func (s Situation) capacity() topics.Requirements { return Capped(s.Total, s.Cap) }

// Capped returns how much of a class may be in use at once whose workers have total.
// What nobody counts is 0 in either.
func Capped(total, limit topics.Requirements) topics.Requirements {
	return topics.Requirements{
		Slots:       min(total.Slots, bounded(total.Slots, limit.Slots)),
		CPUMillis:   bounded(total.CPUMillis, limit.CPUMillis),
		MemoryBytes: bounded(total.MemoryBytes, limit.MemoryBytes),
		GPUs:        min(total.GPUs, bounded(total.GPUs, limit.GPUs)),
	}
}

// bounded returns n, or the bound where there is one that is lower. Where nobody
// counts the amount, the bound is all that there is.
func bounded[N int | int64](n, bound N) N {
	if bound > 0 && (n == 0 || bound < n) {
		return bound
	}
	return n
}

// position returns how many go first, and whether that says anything: not when
// something of its own is in its way.
func (s Situation) position(waits []Wait) (ahead int, known bool) {
	if s.Execution.State != Queued || len(waits) == 0 {
		return 0, false
	}
	switch waits[0].Code {
	case WaitCapacity, WaitBehind, WaitShare, WaitReserved, WaitAdmission:
		return s.Ahead.Count(), true
	default:
		return 0, false
	}
}

// estimate returns about when it is admitted; zero when that cannot be told.
func (s Situation) estimate(waits []Wait) time.Time {
	ahead, known := s.position(waits)
	switch {
	case known && s.Rate > 0 && waits[0].Code != WaitAdmission && ahead < AheadMax:
		wait := time.Duration(float64(ahead+1) / s.Rate * float64(time.Second))
		return s.Now.Add(wait.Round(time.Second))
	case s.Execution.State == Queued && len(waits) == 1:
		// Only one thing is in its way, and that has an end of its own.
		return waits[0].Until
	}
	return time.Time{}
}
