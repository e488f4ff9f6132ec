package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
)

// status puts together what is known of one trigger.
func (f *found) status(t trigger.Stored) trigger.Status {
	s := trigger.Status{ID: t.ID, UID: t.UID, Type: t.Type, Revision: t.Revision, Members: []trigger.MemberStatus{}}
	if t.Enabled != nil && !*t.Enabled {
		s.State, s.Notes = trigger.StateDisabled, f.notes[t.UID]
		f.addPartitions(&s, nil)
		return s
	}
	if t.Type == trigger.TypeWebhook {
		f.addHook(&s, t)
		return s
	}
	if t.Type == trigger.TypeSchedule {
		f.addSchedule(&s)
		return s
	}
	spare := max(Seats(t)-max(f.processes, 1), 0) // for which there is no process
	fresh := make(map[int]int64)
	for n := range Seats(t) {
		m, token := f.member(t, n)
		if token != 0 {
			fresh[n] = token
		} else if spare > 0 {
			spare--
			continue
		}
		s.Members = append(s.Members, m.MemberStatus)
		s.Notes = appendNotes(s.Notes, m.notes)
		if s.Effective == nil {
			s.Effective = m.effective
		}
		worsen(&s, m.State, m.Cause, m.Since, m.NextTry)
	}
	if missing := Seats(t) - len(s.Members); missing > 0 {
		s.Notes = append(s.Notes, trigger.Cause{
			Code:    "too_few_processes",
			Message: fmt.Sprintf("%d of %d members run: each needs a process of its own, and there are %d with the role triggers", len(s.Members), Seats(t), f.processes),
			Hint:    "start more processes with the role triggers, or lower members",
		})
	}
	f.addPartitions(&s, fresh)
	return s
}

// addHook adds what is known of a webhook.
func (f *found) addHook(s *trigger.Status, t trigger.Stored) {
	if s.State = trigger.StateRunning; f.hooks != nil {
		r := f.hooks.Report(t)
		s.State, s.Cause, s.Notes = r.State, r.Cause, r.Notes
	}
}

// addSchedule adds what is known of a schedule.
func (f *found) addSchedule(s *trigger.Status) {
	r, known := f.schedules[s.UID]
	if !known {
		s.State = trigger.StateStarting
		return
	}
	s.State, s.Cause, s.Since, s.NextTry, s.Notes = r.State, r.Cause, r.Since, r.NextTry, r.Notes
	s.NextAt, s.LastAt = r.NextAt, r.LastAt
	if s.State == trigger.StateUnowned {
		s.Cause = f.unowned()
	}
}

// member returns one member, and the token under which it is held now, or 0.
func (f *found) member(t trigger.Stored, n int) (m memberFound, token int64) {
	said, reported := f.members[Seat{t.UID, n}]
	held := f.leases[lease.SlotLease(LeaseKind, Seat{t.UID, n}.Slot().Name)]
	switch {
	case held.live && reported && said.token == held.token:
		return said, held.token
	case held.live:
		// Whoever has it has not said anything yet.
		return memberFound{MemberStatus: trigger.MemberStatus{Member: n, Owner: held.owner, State: trigger.StateStarting}}, held.token
	}
	if f.processes > 0 && f.now.Sub(t.UpdatedAt) < startsWithin {
		return memberFound{MemberStatus: trigger.MemberStatus{Member: n, State: trigger.StateStarting}}, 0
	}
	m = memberFound{MemberStatus: trigger.MemberStatus{Member: n}}
	if reported {
		m.MemberStatus = said.MemberStatus
	}
	m.State, m.NextTry, m.Cause = trigger.StateUnowned, time.Time{}, f.unowned()
	if !held.until.IsZero() {
		m.Since = held.until.UTC()
	}
	return m, 0
}

func (f *found) unowned() *trigger.Cause {
	c := &trigger.Cause{Code: "unowned", Message: "no process runs it", Hint: "start a process with the role triggers"}
	if f.processes > 0 {
		c.Hint = "another process takes it over within seconds; if none does, look at the logs of those with the role triggers"
	}
	return c
}

// addPartitions adds what is known of partitions. Only those count that a present member
// has said something of.
func (f *found) addPartitions(s *trigger.Status, fresh map[int]int64) {
	var lag int64
	known, running := true, s.State == trigger.StateRunning
	for _, p := range f.partitions[s.UID] {
		if fresh[p.Member] != p.token || p.token == 0 {
			if p.old && running {
				continue // it is not there any more
			}
			p.State, p.NextTry = trigger.StateUnowned, time.Time{}
		}
		s.Partitions = append(s.Partitions, p.PartitionStatus)
		known = known && p.End >= 0
		lag += max(p.End-max(p.Offset, 0), 0)
		if p.State == trigger.StateUnowned {
			continue // who has it next tells
		}
		if p.State == trigger.StateError {
			worsen(s, p.State, placed(p.PartitionReport), p.Since, p.NextTry)
		}
	}
	if known && len(s.Partitions) > 0 {
		s.Lag = &lag
	}
}

// placed returns the cause of a stall with where it is.
func placed(p trigger.PartitionReport) *trigger.Cause {
	if p.Cause == nil {
		return nil
	}
	at := fmt.Sprintf("partition %d of %s", p.Partition, p.Topic)
	if p.Offset >= 0 {
		at += fmt.Sprintf(" at offset %d", p.Offset)
	}
	return &trigger.Cause{Code: p.Cause.Code, Hint: p.Cause.Hint, Message: at + ": " + p.Cause.Message}
}

// worsen takes over a state if it is worse than the one so far, or as bad for longer.
func worsen(s *trigger.Status, state trigger.State, cause *trigger.Cause, since, next time.Time) {
	if state.Worse(s.State) || state == s.State && since.Before(s.Since) {
		s.State, s.Cause, s.Since, s.NextTry = state, cause, since, next
	}
}

// appendNotes adds notes that are not there yet: members of one trigger say the same.
func appendNotes(list, more []trigger.Cause) []trigger.Cause {
	for _, note := range more {
		if !slices.Contains(list, note) {
			list = append(list, note)
		}
	}
	return list
}
