// Package nemesis holds the cases of a chaos run: each names a fault, makes it, and
// takes it away again.
//
// # Replay
//
// What a case does follows from the seed: which member it hurts, how often, for how
// long. Two runs with one seed make the same faults in the same order; what the
// processes were doing at that moment is the machine's business. The cases of a mix
// run in two lanes at once, one that hurts processes and one that hurts servers and
// connections, each with random numbers of its own, so that the order within a lane
// does not depend on how fast the other one is.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

// Lane says what a case hurts. Cases of one lane run one after the other.
type Lane int

// The lanes. Alone cases change so much that they get a world of their own.
const (
	Processes Lane = iota
	Servers
	Alone
)

// Case is one kind of fault.
type Case struct {
	// ID is that of the table in the survey of reliability; Title says what happens.
	ID, Title string
	Lane      Lane
	// Brokers is how many it needs at least. 0 means any.
	Brokers int
	// SmallDisk asks for a world whose database is on a disk of so many MiB.
	SmallDisk int
	// WrongClock asks for a world whose processes have wrong clocks.
	WrongClock bool
	// Skip is why the case cannot run here; empty if it can.
	Skip string

	act func(ctx context.Context, l *lane) error
}

// Cases returns all cases, in their order.
func Cases() []Case {
	return slices.Concat(processCases(), brokerCases(), databaseCases(), linkCases(), consumerCases(), restoreCases(), clockCases(), loadCases())
}

// Select returns the cases with the ids, or an error that names the ones that
// there are. "mix" stands for all that are not alone, "all" for all, "L1" for the
// soak: processes, broker and database die by turns.
func Select(ids []string) ([]Case, error) {
	var chosen []Case
	all := Cases()
	for _, id := range ids {
		before := len(chosen)
		for _, c := range all {
			soak := strings.HasPrefix(c.ID, "A") || c.ID == "B1" || c.ID == "C1"
			if c.ID == id || id == "all" || id == "mix" && c.Lane != Alone || id == "L1" && soak {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == before {
			var known []string
			for _, c := range all {
				known = append(known, c.ID)
			}
			return nil, fmt.Errorf("case %q: there are %s, mix, all and L1", id, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// Run is what cases act on.
type Run struct {
	World    *world.World
	Producer *workload.Producer
	Requests *workload.Requests
	Operator *workload.Operator
	Findings *check.Findings
	// Pause stops the workload until the returned function is called.
	Pause func() (resume func())
	// Rewind is called before the database is put back to an earlier point: positions
	// go back with it.
	Rewind func()
	// Restored is called when the database was put back to an earlier point and the
	// processes are to be started on it.
	Restored func(ctx context.Context) error
	// Faults counts what was done.
	Faults atomic.Int64
	// Phantoms is set by cases after which records and effects without a fact are to
	// be expected, because the database was restored to a point before them.
	Phantoms atomic.Bool

	// hurting counts the cases that are at work.
	hurting atomic.Int64
}

// lane is the run as one case sees it.
type lane struct {
	*Run
	rng *rand.Rand
	id  string
}

// Mix runs the cases, picked at random in each lane, until ctx ends, and returns
// when everything that they did is taken away again.
func (r *Run) Mix(ctx context.Context, cases []Case, seed uint64) {
	var lanes sync.WaitGroup
	for _, which := range []Lane{Processes, Servers} {
		mine := slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return c.Lane != which || c.Skip != "" })
		if len(mine) == 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(seed, uint64(which)))
		lanes.Go(func() {
			var bag []int // so that every case has its turn
			for ctx.Err() == nil {
				if len(bag) == 0 {
					bag = rng.Perm(len(mine))
				}
				c := mine[bag[0]]
				bag = bag[1:]
				// A case draws from numbers of its own, however many it uses.
				r.perform(ctx, c, rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())))
				wait(ctx, time.Duration(500+rng.IntN(3000))*time.Millisecond)
			}
		})
	}
	lanes.Wait()
}

// Once runs one case, for those that are alone.
func (r *Run) Once(ctx context.Context, c Case, seed uint64) {
	r.perform(ctx, c, rand.New(rand.NewPCG(seed, 0)))
}

func (r *Run) perform(ctx context.Context, c Case, rng *rand.Rand) {
	r.hurting.Add(1)
	defer r.hurting.Add(-1)
	l := &lane{Run: r, rng: rng, id: c.ID}
	l.note("%s", c.Title)
	if err := c.act(ctx, l); err != nil {
		l.complain("%v", err)
	}
}

// note logs what the case does.
func (l *lane) note(format string, args ...any) {
	l.World.Note("%-3s %s", l.id, fmt.Sprintf(format, args...))
}

// fault logs and counts something that is broken now.
func (l *lane) fault(format string, args ...any) {
	l.Faults.Add(1)
	l.note(format, args...)
}

// complain reports what the case itself found wrong.
func (l *lane) complain(format string, args ...any) {
	d := check.Defect{Kind: check.Other, Check: "case " + l.id, Text: fmt.Sprintf(format, args...)}
	l.Findings.Add(d)
	l.note("FOUND %s", d.Text)
}

// alone reports whether nothing else is broken at the moment, so that what is seen
// is this case's doing.
func (l *lane) alone() bool { return l.hurting.Load() <= 1 }

// between draws a time.
func (l *lane) between(low, high time.Duration) time.Duration {
	return low + time.Duration(l.rng.Int64N(int64(high-low)+1))
}

// hold waits for a time drawn between two, or until the run ends.
func (l *lane) hold(ctx context.Context, low, high time.Duration) { wait(ctx, l.between(low, high)) }

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// until asks every 200 ms whether something has come true.
func until(ctx context.Context, within time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last error
	for {
		done, err := ok()
		if done && err == nil {
			return nil
		}
		last = err
		wait(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("not within %s: %s", within, what), last)
		}
	}
}

// patience is for healing: what was begun is put right also when the run is over.
const patience = 2 * time.Minute

func healing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// pick reserves a member of the part that runs and that no other case is at, or
// returns nil. Release it.
func (l *lane) pick(part string) *world.Member {
	members := l.World.Part(part)
	for _, i := range l.rng.Perm(len(members)) {
		m := members[i]
		if !m.Take() {
			continue
		}
		if m.Running() {
			return m
		}
		m.Release()
	}
	return nil
}

// link draws one of the links.
func (l *lane) link() string { return []string{world.LinkA, world.LinkB}[l.rng.IntN(2)] }
