package check_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
)

// fact is number seq of a key; its event has the same name.
func fact(key string, seq int64) check.Fact {
	return check.Fact{Key: key, Seq: seq, EventID: fmt.Sprintf("%s/%d", key, seq)}
}

// sound is a history of three keys of four facts each, of which one is poison, and
// the ledger of a consumer that has done everything right. The keys take turns.
func sound() (facts []check.Fact, effects []check.Effect) {
	place := int64(0)
	for seq := int64(1); seq <= 4; seq++ {
		for i, key := range []string{"a", "b", "c"} {
			f := fact(key, seq)
			f.Poison = key == "c" && seq == 2
			facts = append(facts, f)
			if f.Poison {
				continue
			}
			place++
			effects = append(effects, check.Effect{
				Consumer: "tx", Place: place, Key: key, Seq: seq, EventID: f.EventID, Partition: int32(i), Offset: seq, Epoch: 1, Process: "p/1",
			})
		}
	}
	// The poison was cured in the end.
	late := fact("c", 2)
	return facts, append(effects, check.Effect{
		Consumer: "tx", Place: place + 1, Key: "c", Seq: 2, EventID: late.EventID, Partition: 2, Offset: 9, Epoch: 1, Process: "p/1",
	})
}

// one requires exactly one defect, of the kind.
func one(t *testing.T, kind check.Kind, found []check.Defect) {
	t.Helper()
	require.Len(t, found, 1, check.Summary(found, 10))
	assert.Equal(t, kind, found[0].Kind, found[0].Text)
}

func index(effects []check.Effect, event string) int {
	for i, e := range effects {
		if e.EventID == event {
			return i
		}
	}
	panic("no effect of " + event)
}

func TestASoundLedgerHasNoDefects(t *testing.T) {
	t.Parallel()
	facts, effects := sound()
	assert.Empty(t, check.Ledger("tx", facts, effects, false))
	assert.Empty(t, check.Owners(effects))
	assert.Empty(t, check.Acknowledged(facts, facts))
}

func TestDefectsOfALedgerAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  check.Kind
		plant func([]check.Fact, []check.Effect) ([]check.Fact, []check.Effect)
	}{
		"an effect is missing": {check.Lost, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			i := index(e, "a/2")
			return f, append(e[:i:i], e[i+1:]...)
		}},
		"the last effect of a key is missing": {check.Lost, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			i := index(e, "b/4")
			return f, append(e[:i:i], e[i+1:]...)
		}},
		"poison was never applied": {check.Lost, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			i := index(e, "c/2")
			return f, append(e[:i:i], e[i+1:]...)
		}},
		"an effect happened twice": {check.Doubled, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			again := e[index(e, "a/3")]
			again.Place = 100
			return f, append(e, again)
		}},
		"poison was applied twice": {check.Doubled, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			again := e[index(e, "c/2")]
			again.Place = 100
			return f, append(e, again)
		}},
		"two effects changed places": {check.Reordered, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			i, j := index(e, "b/2"), index(e, "b/3")
			e[i].Place, e[j].Place = e[j].Place, e[i].Place
			return f, e
		}},
		"an effect has no fact": {check.Phantom, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			return f, append(e, check.Effect{Consumer: "tx", Place: 100, Key: "z", Seq: 1, EventID: "z/1"})
		}},
		"garbage was applied": {check.Other, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			f[0].Garbage = true
			return f, e
		}},
		"an effect is about another fact than its event": {check.Other, func(f []check.Fact, e []check.Effect) ([]check.Fact, []check.Effect) {
			e[index(e, "a/4")].Key = "b"
			return f, e
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, effects := c.plant(sound())
			one(t, c.kind, check.Ledger("tx", facts, effects, false))
		})
	}
}

func TestPhantomsAreAllowedAfterARestore(t *testing.T) {
	t.Parallel()
	facts, effects := sound()
	effects = append(effects, check.Effect{Consumer: "tx", Place: 0, Key: "a", Seq: 4, EventID: "of another history"})
	assert.Empty(t, check.Ledger("tx", facts, effects, true))
}

func TestAcknowledgedFactsThatAreGone(t *testing.T) {
	t.Parallel()
	facts, _ := sound()
	one(t, check.Lost, check.Acknowledged([]check.Fact{fact("a", 5)}, facts))
	other := fact("a", 1)
	other.EventID = "another"
	one(t, check.Other, check.Acknowledged([]check.Fact{other}, facts))
	one(t, check.Lost, check.Acknowledged(nil, facts[1:]))
}

func TestExternalLogExplainsTheLedger(t *testing.T) {
	t.Parallel()
	facts, effects := sound()
	notes := append([]check.Effect{effects[3]}, effects...)
	found, repeated := check.External(facts, effects, notes, false)
	assert.Empty(t, found)
	assert.Equal(t, 1, repeated)
	found, _ = check.External(facts, effects, effects[1:], false)
	one(t, check.Other, found)
	found, _ = check.External(facts, effects, append(notes, check.Effect{Consumer: "tx", EventID: "nobody's"}), false)
	one(t, check.Phantom, found)
}

func TestOnceKeepsTheFirst(t *testing.T) {
	t.Parallel()
	_, effects := sound()
	again := effects[0]
	again.Place = 50
	first, repeated := check.Once(append([]check.Effect{again}, effects...))
	assert.Equal(t, 1, repeated)
	assert.Len(t, first, len(effects))
	assert.Equal(t, effects[0], first[0])
}

func TestOwnersOfAPartition(t *testing.T) {
	t.Parallel()
	_, effects := sound()
	effects[4].Epoch, effects[4].Process = 2, "q/2" // b/2, by a new owner
	one(t, check.Reordered, check.Owners(effects[:8]))
	_, effects = sound()
	effects[4].Process = "q/2"
	found := check.Owners(effects[:7])
	one(t, check.Other, found)
}

func row(seq int64, event string) check.Sent {
	return check.Sent{Seq: seq, EventID: event, Topic: "t", Aggregate: event[:1], Published: true}
}

func record(offset int64, event string) check.Logged {
	return check.Logged{Topic: "t", Offset: offset, EventID: event}
}

func TestTheLogAgainstTheOutbox(t *testing.T) {
	t.Parallel()
	sent := []check.Sent{row(1, "a1"), row(2, "a2"), row(3, "b1"), row(4, "a3")}
	clean := []check.Logged{record(0, "a1"), record(1, "b1"), record(2, "a2"), record(3, "a3")}
	found, counts := check.Log(sent, clean, 1, false)
	assert.Empty(t, found)
	assert.Equal(t, check.LogCounts{Records: 4}, counts)

	// A relay that could not mark publishes the rest once more, in order.
	again := slices.Concat(clean, []check.Logged{record(4, "a2"), record(5, "a3")})
	found, counts = check.Log(sent, again, 2, false)
	assert.Empty(t, found)
	assert.Equal(t, 2, counts.Republished)

	for name, c := range map[string]struct {
		kind    check.Kind
		sent    []check.Sent
		records []check.Logged
		copies  int
	}{
		"marked and never published": {check.Lost, sent, clean[:3], 1},
		"made up":                    {check.Phantom, sent, append(clean, record(9, "c1")), 1},
		"repeated without a fault":   {check.Doubled, sent, append(clean, record(9, "a3")), 1},
		"repeated too often":         {check.Doubled, sent, append(clean, record(7, "a3"), record(8, "a3"), record(9, "a3")), 2},
		"out of order":               {check.Reordered, sent, []check.Logged{record(0, "a2"), record(1, "b1"), record(2, "a1"), record(3, "a3")}, 1},
		"a hole that a repetition fills too late": {check.Reordered, sent,
			[]check.Logged{record(0, "a1"), record(1, "b1"), record(2, "a3"), record(3, "a2"), record(4, "a3")}, 2},
		"published and not marked": {check.Other, []check.Sent{{Seq: 1, EventID: "a1", Topic: "t", Aggregate: "a"}}, clean[:1], 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, _ := check.Log(c.sent, c.records, c.copies, false)
			one(t, c.kind, found)
		})
	}
	found, _ = check.Log(sent, append(clean, record(9, "c1")), 1, true)
	assert.Empty(t, found, "phantoms are allowed after a restore")
}

func TestDeadLettersAgainstTheirRecords(t *testing.T) {
	t.Parallel()
	record := check.Logged{
		Topic: "t", Partition: 1, Offset: 7, Key: []byte("k"), Value: []byte{0xff}, EventID: "a/1",
		Headers: []check.Header{{Key: "x", Value: []byte{1}}, {Key: "x"}},
	}
	letter := func(change func(*check.Letter)) []check.Letter {
		l := check.Letter{Consumer: "tx", Topic: "t", Partition: 1, Offset: 7, Key: record.Key, Value: record.Value, Headers: record.Headers}
		l.Headers = append([]check.Header{}, record.Headers...)
		change(&l)
		return []check.Letter{l}
	}
	poison := []check.Fact{fact("a", 1)}
	judge := func(letters []check.Letter, poison []check.Fact) []check.Defect {
		return check.Letters(letters, []check.Logged{record}, []string{"tx"}, poison)
	}
	assert.Empty(t, judge(letter(func(*check.Letter) {}), poison))
	one(t, check.Lost, judge(nil, poison))
	one(t, check.Other, judge(letter(func(*check.Letter) {}), nil)) // a sound event
	one(t, check.Other, judge(letter(func(l *check.Letter) { l.Value = []byte("?") }), poison))
	one(t, check.Other, judge(letter(func(l *check.Letter) { l.Headers[1].Value = []byte{} }), poison)) // null is not empty
	one(t, check.Other, judge(letter(func(l *check.Letter) { l.Headers = l.Headers[:1] }), poison))
	one(t, check.Other, judge(letter(func(l *check.Letter) { l.Key = nil }), poison))
	found := judge(letter(func(l *check.Letter) { l.Offset = 8 }), poison)
	require.Len(t, found, 2, "of no record, and so none of the poison")
	assert.Equal(t, check.Phantom, found[0].Kind)
}

func TestPositionsNeverGoBack(t *testing.T) {
	t.Parallel()
	var watch check.Positions
	at := func(next, epoch int64) []check.Position {
		return []check.Position{{Group: "g", Topic: "t", TopicID: "1", Next: next, Epoch: epoch}}
	}
	assert.Empty(t, watch.Look(at(-1, 1)))
	assert.Empty(t, watch.Look(at(5, 1)))
	assert.Empty(t, watch.Look(at(5, 2)))
	one(t, check.Reordered, watch.Look(at(4, 2)))
	one(t, check.Reordered, watch.Look(at(4, 1)))
	other := at(0, 1)
	other[0].TopicID = "2"
	assert.Empty(t, watch.Look(other), "a topic made anew is another one")
}

func TestPositionsPassNothing(t *testing.T) {
	t.Parallel()
	records := []check.Logged{record(0, "a1"), record(1, "a2"), record(2, "a3"), record(3, "a4")}
	applied := []check.Effect{{EventID: "a1"}}
	filed := []check.Letter{{Consumer: "tx", Topic: "t", Offset: 1}, {Consumer: "another", Topic: "t", Offset: 2}}
	judge := func(next int64) []check.Defect {
		return check.Passed("tx", []check.Position{{Topic: "t", Next: next}}, records, applied, filed)
	}
	assert.Empty(t, judge(2))
	one(t, check.Lost, judge(3))
	records[2].Targeted = true // meant for somebody else
	assert.Empty(t, judge(3))
}

func TestFindingsAreCounted(t *testing.T) {
	t.Parallel()
	var f check.Findings
	f.Add(check.Defect{Kind: check.Lost, Check: "x", Text: "1"}, check.Defect{Kind: check.Lost, Check: "x", Text: "2"}, check.Defect{Kind: check.Other})
	assert.Equal(t, 2, f.Count(check.Lost))
	assert.Equal(t, 1, f.Count(check.Other))
	assert.Equal(t, "  lost (x): 1\n  lost (x): ... and more\n", check.Summary(f.All()[:2], 1))
}
