package linear

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Use is a call that concerns the capacity of one resource class.
type Use struct {
	Kind UseKind
	// Token is the fencing token of the admitter of an Admission.
	Token int64
	// Executions are those of an Admission, with the slots that they take, or the one
	// that is Freed.
	Executions map[string]int64
	// Worker and Slots are those of an Announcement; 0 slots withdraw it.
	Worker string
	Slots  int64
}

// UseKind is what is done with the capacity.
type UseKind string

// The kinds of use.
const (
	Announcement UseKind = "announce"
	Admission    UseKind = "admit"
	Freed        UseKind = "free"
)

// Told is whether a Use is known to have happened.
type Told struct{ Outcome Outcome }

func (t Told) unknown() bool { return t.Outcome == Unknown }

// class is the state of the model. held and workers are canonical texts, so that
// equal states are equal values.
type class struct {
	token     int64
	used, all int64
	held      string // ids, sorted, each with a comma behind it
	workers   string // name=slots, likewise
}

// CapacityModel is the model of one resource class of which at most limit slots may
// be in use; 0 is no limit beyond what is announced.
func CapacityModel(limit int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return class{} },
		Step: func(state, input, output any) (bool, any) {
			s := state.(class)
			next, ok := s.apply(input.(Use), limit)
			if output.(Told).Outcome == Unknown && !ok {
				return true, s
			}
			return ok, next
		},
		DescribeOperation: func(input, output any) string {
			u := input.(Use)
			return fmt.Sprintf("%s %v by %q (token %d, %d slots) -> %s", u.Kind, u.Executions, u.Worker, u.Token, u.Slots, output.(Told).Outcome)
		},
		DescribeState: func(state any) string {
			s := state.(class)
			return fmt.Sprintf("%d slots in use of %d (%s), by %s token %d", s.used, s.all, s.workers, s.held, s.token)
		},
	}
}

func (s class) apply(u Use, limit int64) (class, bool) {
	ok := true
	switch u.Kind {
	case Announcement:
		workers := parse(s.workers)
		s.all += u.Slots - workers[u.Worker]
		if workers[u.Worker] = u.Slots; u.Slots == 0 {
			delete(workers, u.Worker)
		}
		s.workers = text(workers)
	case Admission:
		ok = u.Token >= s.token
		s.token = u.Token
		held := parse(s.held)
		for id, slots := range u.Executions {
			_, already := held[id]
			ok = ok && !already
			held[id] = slots
			s.used += slots
		}
		bound := s.all
		if limit > 0 {
			bound = min(bound, limit)
		}
		ok = ok && s.used <= bound
		s.held = text(held)
	case Freed:
		held := parse(s.held)
		for id := range u.Executions {
			slots, there := held[id]
			ok = ok && there
			s.used -= slots
			delete(held, id)
		}
		s.held = text(held)
	}
	return s, ok
}

func text(m map[string]int64) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%d,", k, m[k])
	}
	return b.String()
}

func parse(s string) map[string]int64 {
	m := map[string]int64{}
	for part := range strings.SplitSeq(strings.TrimSuffix(s, ","), ",") {
		var n int64
		if k, v, ok := strings.Cut(part, "="); ok {
			for _, digit := range v {
				n = n*10 + int64(digit-'0')
			}
			m[k] = n
		}
	}
	return m
}

// CheckCapacity returns nil when the history of one class can be explained.
func CheckCapacity(ops []porcupine.Operation, limit int64, within time.Duration) error {
	return verdict(CapacityModel(limit), ops, within)
}
