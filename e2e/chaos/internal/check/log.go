package check

import (
	"bytes"
	"cmp"
	"slices"
)

// Sent is one row of the outbox that was, or should have been, published.
type Sent struct {
	// Seq is the order of the commits per aggregate.
	Seq       int64
	EventID   string
	Topic     string
	Aggregate string
	// Published is false for what the broker refused for good, or somebody skipped.
	Published bool
	// Redriven copies of records are not in the order of their aggregate.
	Redriven bool
}

// Logged is one record as it lies in a topic.
type Logged struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	// EventID is what the record calls itself; empty when it cannot be told.
	EventID string
	// Targeted records were given to one consumer again.
	Targeted bool
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// LogCounts is what the log checker counted.
type LogCounts struct {
	// Records is how many lie in the topics, Republished how many of them repeat
	// one that lay there before.
	Records, Republished int
}

// Log holds the records of the topics against the outbox, as a Kafka checker does:
// nothing that was published is missing, nothing was made up, no record lies there
// more than copies times, and per aggregate the first copies are in the order of
// the commits. With phantoms allowed, records without a row are not defects.
func Log(sent []Sent, records []Logged, copies int, phantoms bool) ([]Defect, LogCounts) {
	r := report{name: "log"}
	type name struct{ topic, event string }
	rows := map[name]Sent{}
	redriven := map[name]int{}
	for _, s := range sent {
		if s.Redriven {
			redriven[name{s.Topic, s.EventID}]++
			continue
		}
		rows[name{s.Topic, s.EventID}] = s
	}
	counts := LogCounts{Records: len(records)}
	seen := map[name]int{}
	last := map[string]Sent{}
	for _, l := range slices.SortedFunc(slices.Values(records), byPlace) {
		if l.Targeted {
			continue
		}
		id := name{l.Topic, l.EventID}
		s, ok := rows[id]
		if !ok {
			if !phantoms {
				r.add(Phantom, "%s/%d offset %d: event %q is not in the outbox", l.Topic, l.Partition, l.Offset, l.EventID)
			}
			continue
		}
		if seen[id]++; seen[id] > 1 {
			counts.Republished++
			if seen[id] == copies+1 {
				r.add(Doubled, "%s/%d: event %s lies there more than %d times", l.Topic, l.Partition, l.EventID, copies)
			}
			continue
		}
		// Order holds within a partition; an aggregate has one, unless its key differs.
		lane := l.Topic + "/" + s.Aggregate
		if before, ok := last[lane]; ok && s.Seq < before.Seq {
			r.add(Reordered, "%s offset %d: event %s (row %d) behind row %d of %s", l.Topic, l.Offset, l.EventID, s.Seq, before.Seq, s.Aggregate)
		}
		if s.Seq > last[lane].Seq {
			last[lane] = s
		}
	}
	for id, s := range rows {
		switch {
		case s.Published && seen[id] == 0:
			r.add(Lost, "event %s (row %d of %s) is marked as published and not in %s", s.EventID, s.Seq, s.Aggregate, s.Topic)
		case !s.Published && seen[id] > 0:
			r.add(Other, "event %s (row %d of %s) lies in %s and is not marked as published", s.EventID, s.Seq, s.Aggregate, s.Topic)
		}
	}
	return r.defects, counts
}

func byPlace(a, b Logged) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// Letter is one dead letter.
type Letter struct {
	Consumer  string
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	EventID   string
	Class     string
	Error     string
}

// Letters holds the dead letters against the records that they are of: to the
// byte, of a record that exists, and only of poison, which Expected tells. Every
// poison event must have a letter of each consumer.
func Letters(letters []Letter, records []Logged, consumers []string, poison []Fact) []Defect {
	r := report{name: "dead letters"}
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	at := make(map[place]Logged, len(records))
	for _, l := range records {
		at[place{l.Topic, l.Partition, l.Offset}] = l
	}
	expected := make(map[string]bool, len(poison))
	for _, f := range poison {
		expected[f.EventID] = true
	}
	type act struct{ consumer, event string }
	filed := map[act]bool{}
	for _, d := range letters {
		l, ok := at[place{d.Topic, d.Partition, d.Offset}]
		if !ok {
			r.add(Phantom, "of %s for %s/%d offset %d, where no record is", d.Consumer, d.Topic, d.Partition, d.Offset)
			continue
		}
		if !same(d, l) {
			r.add(Other, "of %s for %s/%d offset %d is not the record to the byte", d.Consumer, d.Topic, d.Partition, d.Offset)
		}
		if !expected[l.EventID] {
			r.add(Other, "of %s for event %s at %s/%d offset %d, which is sound: %s: %s", d.Consumer, l.EventID, d.Topic, d.Partition, d.Offset, d.Class, d.Error)
		}
		filed[act{d.Consumer, l.EventID}] = true
	}
	for _, f := range poison {
		for _, c := range consumers {
			if !filed[act{c, f.EventID}] {
				r.add(Lost, "none of %s for poison %s/%d (event %s)", c, f.Key, f.Seq, f.EventID)
			}
		}
	}
	return r.defects
}

// same compares nil and empty as different things, as Kafka does.
func same(d Letter, l Logged) bool {
	equal := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	return equal(d.Key, l.Key) && equal(d.Value, l.Value) && slices.EqualFunc(d.Headers, l.Headers, func(a, b Header) bool {
		return a.Key == b.Key && equal(a.Value, b.Value)
	})
}
