package lease

import (
	"cmp"
	"slices"
)

// Slot is something that one member at a time holds the lease of.
type Slot struct {
	// Name tells it from the other slots of its kind.
	Name string
	// Group bars a member from holding two slots of one group. The zero value bars nothing.
	Group string
}

// place says which member is to hold which slot, by name, when the slots of held have
// the holders that it says. It is a function of its arguments alone, so that members that
// see the same come to the same result without asking each other. What is held stays
// where it is, unless somebody else would have less than its share. Slots of a group with
// more slots than there are members are left out.
func place(slots []Slot, members []string, held map[string]string) map[string]string {
	slots = slices.SortedFunc(slices.Values(slots), func(a, b Slot) int { return cmp.Compare(a.Name, b.Name) })
	p := &placement{of: make(map[string]string, len(slots)), groups: make(map[seat]bool)}
	for _, name := range members {
		p.members = append(p.members, &load{member: name})
	}
	var open []Slot
	for _, slot := range slots {
		i := slices.IndexFunc(p.members, func(l *load) bool { return l.member == held[slot.Name] })
		if i < 0 || !p.may(slot, p.members[i]) {
			open = append(open, slot)
			continue
		}
		p.give(slot, p.members[i])
	}
	for _, slot := range open {
		if to := p.lightest(slot); to != nil {
			p.give(slot, to)
		}
	}
	p.level()
	return p.of
}

// placement is an assignment that is being made.
type placement struct {
	of      map[string]string // member by slot
	members []*load
	groups  map[seat]bool
}

// load is what a member has, by name.
type load struct {
	member string
	slots  []Slot
}

// seat is the one place that a group has at a member.
type seat struct{ group, member string }

func (p *placement) may(slot Slot, to *load) bool {
	return slot.Group == "" || !p.groups[seat{slot.Group, to.member}]
}

func (p *placement) give(slot Slot, to *load) {
	p.of[slot.Name] = to.member
	p.groups[seat{slot.Group, to.member}] = true
	at, _ := slices.BinarySearchFunc(to.slots, slot, func(a, b Slot) int { return cmp.Compare(a.Name, b.Name) })
	to.slots = slices.Insert(to.slots, at, slot)
}

// lightest returns who has the fewest slots of those who may have this one.
func (p *placement) lightest(slot Slot) (best *load) {
	for _, l := range p.members {
		if p.may(slot, l) && (best == nil || len(l.slots) < len(best.slots)) {
			best = l
		}
	}
	return best
}

// level moves slots until no move would make shares more equal. Each move does, so it
// ends.
func (p *placement) level() {
	for p.move() {
	}
}

func (p *placement) move() bool {
	order := slices.Clone(p.members)
	slices.SortStableFunc(order, func(a, b *load) int { return cmp.Compare(len(b.slots), len(a.slots)) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			if len(from.slots)-len(to.slots) < 2 {
				break
			}
			// The last by name: when some of what is to move has moved, it is the rest.
			for i, slot := range slices.Backward(from.slots) {
				if !p.may(slot, to) {
					continue
				}
				from.slots = slices.Delete(from.slots, i, i+1)
				delete(p.groups, seat{slot.Group, from.member})
				p.give(slot, to)
				return true
			}
		}
	}
	return false
}
