package check

// Position is where a consumer's group is in one partition, as PostgreSQL says.
type Position struct {
	Group, Topic, TopicID string
	Partition             int32
	Next, Epoch           int64
}

type positionKey struct {
	group, topic, id string
	partition        int32
}

// Positions watches positions while a run goes on. The zero value is ready; it is
// not safe for concurrent use.
type Positions struct{ last map[positionKey]Position }

// Look takes a sample and returns what went backwards since the one before.
func (p *Positions) Look(sample []Position) []Defect {
	r := report{name: "positions"}
	if p.last == nil {
		p.last = map[positionKey]Position{}
	}
	for _, now := range sample {
		key := positionKey{now.Group, now.Topic, now.TopicID, now.Partition}
		before, ok := p.last[key]
		p.last[key] = now
		if !ok {
			continue
		}
		if now.Next < before.Next {
			r.add(Reordered, "%s went back from offset %d to %d in %s/%d", now.Group, before.Next, now.Next, now.Topic, now.Partition)
		}
		if now.Epoch < before.Epoch {
			r.add(Reordered, "%s went back from epoch %d to %d in %s/%d", now.Group, before.Epoch, now.Epoch, now.Topic, now.Partition)
		}
	}
	return r.defects
}

// Passed holds that no position is beyond a record that its consumer has neither
// applied nor filed as a dead letter.
func Passed(consumer string, positions []Position, records []Logged, effects []Effect, letters []Letter) []Defect {
	r := report{name: "positions of " + consumer}
	settled := make(map[string]bool, len(effects))
	for _, e := range effects {
		settled[e.EventID] = true
	}
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	filed := map[place]bool{}
	for _, l := range letters {
		if l.Consumer == consumer {
			filed[place{l.Topic, l.Partition, l.Offset}] = true
		}
	}
	next := map[place]int64{}
	for _, p := range positions {
		next[place{topic: p.Topic, partition: p.Partition}] = p.Next
	}
	for _, l := range records {
		end, ok := next[place{topic: l.Topic, partition: l.Partition}]
		if !ok || l.Offset >= end || l.Targeted || settled[l.EventID] || filed[place{l.Topic, l.Partition, l.Offset}] {
			continue
		}
		r.add(Lost, "%s/%d: position %d has passed offset %d (event %s), which was neither applied nor filed", l.Topic, l.Partition, end, l.Offset, l.EventID)
	}
	return r.defects
}
