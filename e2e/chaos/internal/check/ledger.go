package check

import (
	"cmp"
	"slices"
)

// Fact is one committed business transaction, with the event that it enqueued.
type Fact struct {
	Key string
	// Seq counts the facts of a key from 1, without gaps.
	Seq     int64
	EventID string
	// Poison facts fail at the consumers until they are cured, so their effects come
	// late; they are left out of the order. Garbage can never be applied.
	Poison, Garbage bool
}

// Effect is one row of a consumer's ledger, or one line of the log of a consumer
// that has no transaction.
type Effect struct {
	Consumer string
	// Place orders the effects of one consumer: it ascends in the order in which
	// they happened.
	Place   int64
	Key     string
	Seq     int64
	EventID string
	// Where the record lay, and who applied it under which epoch. Epoch is 0 where
	// it is not known.
	Partition int32
	Offset    int64
	Epoch     int64
	Process   string
}

type factKey struct {
	key string
	seq int64
}

// Acknowledged holds commits that the client saw succeed against the facts that
// are in the database now, and the facts of each key against gaps.
func Acknowledged(acked, facts []Fact) []Defect {
	r := report{name: "facts"}
	there := make(map[factKey]string, len(facts))
	last := map[string]int64{}
	count := map[string]int64{}
	for _, f := range facts {
		there[factKey{f.Key, f.Seq}] = f.EventID
		last[f.Key] = max(last[f.Key], f.Seq)
		count[f.Key]++
	}
	for _, a := range acked {
		switch id, ok := there[factKey{a.Key, a.Seq}]; {
		case !ok:
			r.add(Lost, "fact %s/%d was acknowledged and is gone", a.Key, a.Seq)
		case id != a.EventID:
			r.add(Other, "fact %s/%d is event %s, acknowledged was %s", a.Key, a.Seq, id, a.EventID)
		}
	}
	for key, n := range count {
		if n != last[key] {
			r.add(Lost, "key %s has %d facts, the last is %d", key, n, last[key])
		}
	}
	return r.defects
}

// Ledger holds the effects of one consumer against the facts: each once, none
// missing, none made up, in order per key. With phantoms allowed, as after a
// restore of the database, effects without a fact are not defects.
func Ledger(consumer string, facts []Fact, effects []Effect, phantoms bool) []Defect {
	r := report{name: "ledger of " + consumer}
	known := make(map[string]Fact, len(facts))
	for _, f := range facts {
		known[f.EventID] = f
	}
	sorted := slices.SortedFunc(slices.Values(effects), func(a, b Effect) int { return cmp.Compare(a.Place, b.Place) })
	applied := make(map[string]Effect, len(effects))
	last := map[string]int64{}
	for _, e := range sorted {
		f, ok := known[e.EventID]
		if !ok {
			if !phantoms {
				r.add(Phantom, "event %s (%s/%d) was applied and has no fact", e.EventID, e.Key, e.Seq)
			}
			continue
		}
		if first, again := applied[e.EventID]; again {
			r.add(Doubled, "%s/%d (event %s) by %s at %d/%d epoch %d and by %s at %d/%d epoch %d", f.Key, f.Seq, e.EventID,
				first.Process, first.Partition, first.Offset, first.Epoch, e.Process, e.Partition, e.Offset, e.Epoch)
			continue
		}
		applied[e.EventID] = e
		if f.Key != e.Key || f.Seq != e.Seq {
			r.add(Other, "event %s is %s/%d and was applied as %s/%d", e.EventID, f.Key, f.Seq, e.Key, e.Seq)
		}
		if f.Garbage {
			r.add(Other, "%s/%d is garbage and was applied", f.Key, f.Seq)
		}
		if f.Poison {
			continue
		}
		if f.Seq <= last[f.Key] {
			r.add(Reordered, "%s/%d after %s/%d, by %s at %d/%d", f.Key, f.Seq, f.Key, last[f.Key], e.Process, e.Partition, e.Offset)
		}
		last[f.Key] = max(last[f.Key], f.Seq)
	}
	for _, f := range facts {
		if _, ok := applied[f.EventID]; !ok && !f.Garbage {
			r.add(Lost, "%s/%d (event %s, poison %t) was never applied", f.Key, f.Seq, f.EventID, f.Poison)
		}
	}
	return r.defects
}

// Once drops all but the first effect of each event: what at-least-once consumers
// are judged by. It also returns how many it dropped.
func Once(effects []Effect) (first []Effect, repeated int) {
	seen := make(map[string]bool, len(effects))
	for _, e := range slices.SortedFunc(slices.Values(effects), func(a, b Effect) int { return cmp.Compare(a.Place, b.Place) }) {
		if seen[e.EventID] {
			repeated++
			continue
		}
		seen[e.EventID] = true
		first = append(first, e)
	}
	return first, repeated
}

// External holds what consumers noted outside of the database, before their
// effect, against the ledger: every effect has its note, and every note is of a
// fact that exists. It returns how many notes beyond the first the effects have.
func External(facts []Fact, ledger, notes []Effect, phantoms bool) (defects []Defect, repeated int) {
	r := report{name: "external log"}
	type act struct{ consumer, event string }
	noted := map[act]int{}
	known := make(map[string]bool, len(facts))
	for _, f := range facts {
		known[f.EventID] = true
	}
	for _, n := range notes {
		if !known[n.EventID] && !phantoms {
			r.add(Phantom, "%s noted event %s (%s/%d), which has no fact", n.Consumer, n.EventID, n.Key, n.Seq)
		}
		if noted[act{n.Consumer, n.EventID}]++; noted[act{n.Consumer, n.EventID}] > 1 {
			repeated++
		}
	}
	for _, e := range ledger {
		if noted[act{e.Consumer, e.EventID}] == 0 {
			r.add(Other, "%s applied %s/%d (event %s) and nothing outside knows of it", e.Consumer, e.Key, e.Seq, e.EventID)
		}
	}
	return r.defects, repeated
}

// Owners holds that the effects of a partition carry epochs that never go down,
// and that under one epoch one process acted.
func Owners(effects []Effect) []Defect {
	r := report{name: "owners"}
	type lane struct {
		consumer  string
		partition int32
	}
	type reign struct {
		lane
		epoch int64
	}
	last := map[lane]Effect{}
	owner := map[reign]string{}
	for _, e := range slices.SortedFunc(slices.Values(effects), func(a, b Effect) int { return cmp.Compare(a.Place, b.Place) }) {
		if e.Epoch == 0 {
			continue
		}
		at := lane{e.Consumer, e.Partition}
		if before, ok := last[at]; ok && e.Epoch < before.Epoch {
			r.add(Reordered, "%s/%d: epoch %d of %s after epoch %d of %s", e.Consumer, e.Partition, e.Epoch, e.Process, before.Epoch, before.Process)
		}
		last[at] = e
		switch who := owner[reign{at, e.Epoch}]; who {
		case "":
			owner[reign{at, e.Epoch}] = e.Process
		case e.Process:
		default:
			r.add(Other, "%s/%d: under epoch %d both %s and %s acted", e.Consumer, e.Partition, e.Epoch, who, e.Process)
		}
	}
	return r.defects
}
