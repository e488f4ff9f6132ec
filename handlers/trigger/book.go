package trigger

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

// book is what this process knows of the triggers.
type book struct {
	compile func(trigger.Stored) (*trigger.Compiled, error)

	mu      sync.Mutex
	entries map[string]*entry // by uid
}

// entry is one revision of a trigger.
type entry struct {
	stored trigger.Stored
	// Either it can be run, or err says why not.
	compiled *trigger.Compiled
	err      error
	// current ends when there is another revision, or none any more.
	current context.Context
	end     context.CancelFunc
}

func newBook(compile func(trigger.Stored) (*trigger.Compiled, error)) *book {
	return &book{compile: compile, entries: make(map[string]*entry)}
}

// get returns the present revision of a trigger, nil if there is none.
func (b *book) get(uid string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[uid]
}

// take takes over what is stored now. It returns the triggers that are not there any more.
func (b *book) take(ctx context.Context, all []trigger.Stored) (gone []trigger.Stored) {
	fresh := make(map[string]*entry, len(all))
	for _, stored := range all {
		old := b.get(stored.UID)
		if old != nil && old.stored.Revision == stored.Revision {
			fresh[stored.UID] = old
			continue
		}
		e := &entry{stored: stored}
		// It ends with its revision, and not with this loop: a member that ended before its
		// place does would be begun once more.
		e.current, e.end = context.WithCancel(context.WithoutCancel(ctx))
		e.err = Guard(func() (err error) {
			e.compiled, err = b.compile(stored)
			return err
		})
		fresh[stored.UID] = e
	}
	b.mu.Lock()
	former := b.entries
	b.entries = fresh
	b.mu.Unlock()
	for uid, old := range former {
		if fresh[uid] != old {
			old.end()
		}
		if fresh[uid] == nil {
			gone = append(gone, old.stored)
		}
	}
	return gone
}

// seats returns the members that are to run, of types that sources has, and the uids of all
// triggers.
func (b *book) seats(sources map[trigger.Type]Source) (seats []report.Seat, uids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, e := range b.entries {
		uids = append(uids, uid)
		if sources[e.stored.Type] == nil {
			continue
		}
		for n := range report.Seats(e.stored) {
			seats = append(seats, report.Seat{UID: uid, Member: n})
		}
	}
	return seats, uids
}

// slots are seats as leases know them.
func slots(seats []report.Seat) []lease.Slot {
	list := make([]lease.Slot, len(seats))
	for i, s := range seats {
		list[i] = s.Slot()
	}
	return list
}

// seatOf returns whose slot it is.
func seatOf(slot lease.Slot) (report.Seat, error) {
	s := report.Seat{UID: slot.Group}
	_, err := fmt.Sscanf(slot.Name[min(len(slot.Name), len(slot.Group)):], "/%d", &s.Member)
	if err != nil {
		return s, fmt.Errorf("read slot %s: %w", slot.Name, err)
	}
	return s, nil
}
