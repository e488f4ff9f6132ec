// Package check judges what is left of a run: it compares what was committed with
// what lies in the topics, what consumers did, and what became dead letters. It
// knows neither processes nor servers; histories go in, defects come out.
//
// The invariants, with the words that the verdict counts them by:
//
//   - lost: a committed fact has no record in its topic, no effect at a consumer,
//     or no dead letter although it is poison; a consumer's position is beyond a
//     record that it has neither applied nor filed; an acknowledged commit is gone.
//   - doubled: a consumer has applied one event twice; an idempotency key has led to
//     two executions; a state change has two events; a record was published more
//     often than the faults explain.
//   - reordered: the effects, or the first copies of the records, of one key are not
//     in the order of the commits; an owner's epoch or a position went backwards.
//   - phantom: a record or an effect without a committed fact.
//   - other: anything else that must not be, such as a changed dead letter, a
//     connection that is left, an exit code.
package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Kind is what sort of defect was found.
type Kind string

// The kinds of defects.
const (
	Lost      Kind = "lost"
	Doubled   Kind = "doubled"
	Reordered Kind = "reordered"
	Phantom   Kind = "phantom"
	Other     Kind = "other"
)

// Kinds returns all kinds, in the order of the verdict.
func Kinds() []Kind { return []Kind{Lost, Doubled, Reordered, Phantom, Other} }

// Defect is one violation of an invariant.
type Defect struct {
	Kind Kind
	// Check names who found it, Text says what it is.
	Check, Text string
}

// String is the defect as one line.
func (d Defect) String() string { return fmt.Sprintf("%s (%s): %s", d.Kind, d.Check, d.Text) }

// Findings gathers defects. It is safe for concurrent use; the zero value is ready.
type Findings struct {
	mu      sync.Mutex
	defects []Defect
}

// Add adds defects.
func (f *Findings) Add(defects ...Defect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.defects = append(f.defects, defects...)
}

// All returns the defects found so far.
func (f *Findings) All() []Defect {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.defects)
}

// Count returns how many defects of a kind were found.
func (f *Findings) Count(k Kind) int {
	n := 0
	for _, d := range f.All() {
		if d.Kind == k {
			n++
		}
	}
	return n
}

// report makes the defects of one check.
type report struct {
	name    string
	defects []Defect
}

func (r *report) add(k Kind, format string, args ...any) {
	r.defects = append(r.defects, Defect{Kind: k, Check: r.name, Text: fmt.Sprintf(format, args...)})
}

// Summary is the defects as text: at most perCheck of each check and kind.
func Summary(defects []Defect, perCheck int) string {
	var out strings.Builder
	shown := map[string]int{}
	for _, d := range defects {
		group := d.Check + string(d.Kind)
		if shown[group]++; shown[group] <= perCheck {
			fmt.Fprintln(&out, "  "+d.String())
		} else if shown[group] == perCheck+1 {
			fmt.Fprintf(&out, "  %s (%s): ... and more\n", d.Kind, d.Check)
		}
	}
	return out.String()
}
