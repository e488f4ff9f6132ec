package execution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// queued gives the reasons of a queued execution: those that nobody but a person
// can change come first, then those that time changes.
func (s Situation) queued() []Wait {
	var waits []Wait
	add := func(w ...Wait) { waits = append(waits, w...) }
	add(s.held()...)
	add(s.unservable()...)
	add(s.unadmitted()...)
	add(s.early()...)
	add(s.outOfTurn()...)
	add(s.limited()...)
	if len(waits) == 0 {
		add(s.crowded()...)
	}
	if len(waits) == 0 {
		add(Wait{
			Code: WaitAdmission, Message: "nothing is in its way, it is admitted in the next round",
			Release: "a process with the role coordinator, within moments",
		})
	}
	return waits
}

// held gives the holds.
func (s Situation) held() []Wait {
	var waits []Wait
	for _, h := range s.Holds {
		message := h.What + " was put on hold " + span(s.Now.Sub(h.Since)) + " ago"
		if h.By != "" {
			message += " by " + h.By
		}
		if h.Reason != "" {
			message += " (" + strings.TrimRight(h.Reason, ".") + ")"
		}
		waits = append(waits, Wait{Code: WaitHold, Message: message, Release: "`" + h.Resume + "`"})
	}
	return waits
}

// unservable gives the reasons why no worker could take it.
func (s Situation) unservable() []Wait {
	r := s.Execution.Request
	switch {
	case s.Workers == 0:
		return []Wait{{
			Code: WaitNoWorkers, Message: fmt.Sprintf("no worker serves the resource class %q", r.ResourceClass),
			Release: fmt.Sprintf("start a worker that has %q in worker.resource_classes", r.ResourceClass),
		}}
	case !slices.Contains(s.Executors, r.Executor):
		return []Wait{{
			Code: WaitNoExecutor,
			Message: fmt.Sprintf("no worker of the resource class %q offers the executor %q: %s %s",
				r.ResourceClass, r.Executor, plural(s.Workers, "the only one there is offers", "those that there are offer"), list(s.Executors)),
			Release: fmt.Sprintf("start a worker that has %q in worker.executors", r.Executor),
		}}
	case len(s.Pool.Names) > 0 && !s.Pool.Known:
		return []Wait{{
			Code:    WaitNoExecutor,
			Message: fmt.Sprintf("no worker that offers the executor %q knows yet how much room there is in %s", r.Executor, s.Pool),
			Release: "a worker that can ask for it: the log of each says what it hears",
		}}
	case len(s.Pool.Names) > 0 && s.Pool.Total.Slots == 0:
		return []Wait{{
			Code: WaitTooLarge,
			Message: fmt.Sprintf("%s, where the executor %q runs things, has nothing for the resource class %q: no node there is ready and fits the class, or a quota allows none",
				s.Pool, r.Executor, r.ResourceClass),
			Release: fmt.Sprintf("nodes that fit (%s.classes.%s: node_selector, tolerations), or a larger quota", r.Executor, r.ResourceClass),
		}}
	}
	return s.tooLarge()
}

// tooLarge gives the reason why no worker is large enough.
func (s Situation) tooLarge() []Wait {
	need := amountsOf(s.Execution.needs())
	largest := amountsOf(s.Largest)
	caps := amountsOf(s.Cap)
	for i, n := range need {
		most := bounded(largest[i].n, caps[i].n)
		if n.n == 0 || n.n <= most || most == 0 && !n.countable {
			continue
		}
		message := fmt.Sprintf("it needs %s at one worker, and the largest of its class may give %s", n, n.of(most))
		return []Wait{{
			Code: WaitTooLarge, Message: message,
			Release: fmt.Sprintf("a worker with more %s (worker.%s), or the same request with less", n.noun, n.setting),
		}}
	}
	if s.Servable {
		return nil
	}
	return []Wait{{
		Code: WaitTooLarge, Message: "it needs " + everything(need) + " at one worker, and none of its class has all of that together",
		Release: "a worker that has all of it, or the same request with less",
	}}
}

// unadmitted gives the reason why nobody lets it through.
func (s Situation) unadmitted() []Wait {
	if !s.Admitter.Absent {
		return nil
	}
	message := fmt.Sprintf("no coordinator admits executions of the resource class %q", s.Execution.Request.ResourceClass)
	if s.Admitter.Last != "" {
		message += fmt.Sprintf(": %s did until %s ago", s.Admitter.Last, span(s.Now.Sub(s.Admitter.Until)))
	}
	return []Wait{{
		Code: WaitNoAdmitter, Message: message, Release: "a process with the role coordinator; where one is running it takes over within seconds",
	}}
}

// early gives the reason why it is not its time yet.
func (s Situation) early() []Wait {
	e := s.Execution
	if !e.ReadyAt.After(s.Now) {
		return nil
	}
	in := span(e.ReadyAt.Sub(s.Now))
	switch b := e.Setback; {
	case b != nil && b.Cause == topics.RequeuedPostponed:
		message := fmt.Sprintf("there is no room for it where the executor %q runs things%s", e.Request.Executor, b.words())
		if b.Times > 1 {
			message += fmt.Sprintf("; it was tried %d times in %s", b.Times, span(s.Now.Sub(b.Since)))
		} else {
			message += "; it was tried once"
		}
		return []Wait{{
			Code: WaitNoRoom, Message: message + ", and is tried again in " + in,
			Release: "room there; it is tried again at " + e.ReadyAt.Format(time.RFC3339), Until: e.ReadyAt,
		}}
	case e.Attempt > 1:
		return []Wait{{
			Code: WaitBackoff, Message: fmt.Sprintf("its last attempt came to nothing%s, and attempt %d is due in %s", b.words(), e.Attempt, in),
			Release: "nothing but time, until " + e.ReadyAt.Format(time.RFC3339), Until: e.ReadyAt,
		}}
	}
	return []Wait{{
		Code: WaitNotBefore, Message: fmt.Sprintf("it is not to start before %s, which is in %s", e.ReadyAt.Format(time.RFC3339), in),
		Release: "nothing but time, until " + e.ReadyAt.Format(time.RFC3339), Until: e.ReadyAt,
	}}
}

// words says why an attempt came to nothing, behind a colon; nothing where that is not
// known.
func (b *Setback) words() string {
	switch {
	case b == nil || b.Reason == "" && b.Message == "":
		return ""
	case b.Message == "":
		return ": " + b.Reason
	default:
		return ": " + strings.TrimRight(b.Message, ".")
	}
}

// outOfTurn gives the reason why another one with its concurrency key comes first.
func (s Situation) outOfTurn() []Wait {
	if s.Predecessors == 0 {
		return nil
	}
	first := fmt.Sprintf("%s (%s) comes before it", s.Predecessor.ID, s.Predecessor.State)
	if s.Predecessors > 1 {
		first = fmt.Sprintf("%s come before it, the first of them %s (%s)", number(s.Predecessors), s.Predecessor.ID, s.Predecessor.State)
	}
	return []Wait{{
		Code: WaitConcurrencyKey,
		Message: fmt.Sprintf("executions with the concurrency key %q run one at a time, in the order of their submission, and %s",
			s.Execution.Request.ConcurrencyKey, first),
		Release: "the end of execution " + s.Predecessor.ID,
	}}
}

// limited gives the limits that are used up.
func (s Situation) limited() []Wait {
	var waits []Wait
	for _, l := range s.Limits {
		first := ""
		if l.Before > 0 {
			first = fmt.Sprintf("; %s of the same key %s first", number(l.Before), plural(l.Before, "goes", "go"))
		}
		if l.Rate == "" {
			waits = append(waits, Wait{
				Code: WaitLimit,
				Message: fmt.Sprintf("the limit %q lets %d run at once for %q, and %s%s",
					l.Name, l.Concurrency, l.Key, many(l.InUse, "does", "do"), first),
				Release: "the end of one of them",
			})
			continue
		}
		waits = append(waits, Wait{
			Code: WaitLimit,
			Message: fmt.Sprintf("the limit %q (%s) is used up for %q: the next one may go in %s%s",
				l.Name, l.Rate, l.Key, span(l.Next.Sub(s.Now)), first),
			Release: "its turn, at about " + l.Turn.Format(time.RFC3339),
			Until:   l.Turn,
		})
	}
	return waits
}

// crowded gives the reasons why others go first.
func (s Situation) crowded() []Wait {
	var waits []Wait
	if w, lacking := s.lacking(); lacking {
		waits = append(waits, w)
	} else if w, reserved := s.reserved(); reserved {
		waits = append(waits, w)
	}
	if w, over := s.overShare(); over {
		waits = append(waits, w)
	}
	if ahead := s.Ahead.Count(); ahead > 0 {
		about := "about "
		if s.Ahead.Others == 0 || ahead == 1 || ahead >= AheadMax {
			about = "" // nobody takes turns with its user, or the word would be odd
		}
		waits = append(waits, Wait{
			Code:    WaitBehind,
			Message: fmt.Sprintf("%s%s %s before it: %s", about, number(ahead), plural(ahead, "execution goes", "executions go"), s.Ahead.whose(ahead)),
			Release: plural(ahead, "its", "their") + " admission, or a higher priority (millrace executions prioritize)",
		})
	}
	return waits
}

// whose says why those ahead go first.
func (a Ahead) whose(count int) string {
	var why []string
	if a.Higher > 0 {
		why = append(why, plural(count, "one of another user with a higher priority", "those of other users with a higher priority"))
	}
	if a.Own > 0 {
		why = append(why, plural(count, "one of its own user that came first", "those of its own user that came first"))
	}
	if a.Others > 0 {
		why = append(why, plural(count, "one of another user, whose turn it is", "those of other users, who take turns with its own"))
	}
	return strings.Join(why, "; ")
}

// lacking gives the reason if too little is free of something that it needs.
func (s Situation) lacking() (Wait, bool) {
	if w, lacking := s.lackingInPool(); lacking {
		return w, true
	}
	total, used := amountsOf(s.capacity()), amountsOf(s.Used)
	for i, need := range amountsOf(s.Execution.needs()) {
		if need.n == 0 || total[i].n == 0 && !need.countable || total[i].n-used[i].n >= need.n {
			continue
		}
		message := s.inUse(i, total[i], used[i])
		if used[i].n < total[i].n {
			message += ", and it needs " + need.figure()
			if since := s.Now.Sub(s.Execution.ReadyAt); s.Ahead.Count() == 0 && s.Overtake > 0 && since >= s.Overtake {
				message += "; it has waited for so long that nothing passes it any more"
			}
		}
		release := "the end of what runs there, or another worker"
		if s.capped(i) {
			release = fmt.Sprintf("the end of what runs there, or a higher cap (coordinator.classes.%s.%s)",
				s.Execution.Request.ResourceClass, need.setting)
		}
		return Wait{Code: WaitCapacity, Message: message, Release: release}, true
	}
	return Wait{}, false
}

// lackingInPool gives the reason if too little is free where its executor runs things.
func (s Situation) lackingInPool() (Wait, bool) {
	if len(s.Pool.Names) == 0 {
		return Wait{}, false
	}
	total, used := amountsOf(s.Pool.Total), amountsOf(s.Pool.Used)
	for i, need := range amountsOf(s.Execution.needs()) {
		if need.n == 0 || total[i].n == 0 && !need.countable || total[i].n-used[i].n >= need.n {
			continue
		}
		return Wait{
			Code: WaitCapacity,
			Message: fmt.Sprintf("%s, where the executor %q runs things, has %s for the resource class %q, of which %s in use, and it needs %s",
				s.Pool, s.Execution.Request.Executor, total[i], s.Execution.Request.ResourceClass, used[i].are(used[i].n), need.figure()),
			Release: "the end of what runs there, or more room there",
		}, true
	}
	return Wait{}, false
}

// capped reports whether the class may use less of a resource than its workers have.
func (s Situation) capped(resource int) bool {
	most, there := amountsOf(s.Cap)[resource].n, amountsOf(s.Total)[resource].n
	return most > 0 && (there == 0 || most < there)
}

// inUse says how much of a resource is in use.
func (s Situation) inUse(resource int, total, used amount) string {
	class := s.Execution.Request.ResourceClass
	switch {
	case s.capped(resource) && used.n < total.n:
		return fmt.Sprintf("the resource class %q may use %s at once, of which %s in use", class, total, used.are(used.n))
	case s.capped(resource):
		return fmt.Sprintf("the resource class %q may use %s at once, and no more is free", class, total)
	case used.n < total.n:
		return fmt.Sprintf("%s of the %s of the resource class %q are in use", used.figure(), total, class)
	case total.n == 1:
		return fmt.Sprintf("%s of the resource class %q is in use", total.whole(), class)
	default:
		return fmt.Sprintf("%s of the resource class %q are in use", total.whole(), class)
	}
}

// reserved gives the reason if what is free is kept for one that comes first and needs
// more.
func (s Situation) reserved() (Wait, bool) {
	if s.Ahead.Count() == 0 || s.Next.ID == "" || s.Now.Sub(s.Next.Ready) < s.Overtake {
		return Wait{}, false
	}
	total, used := amountsOf(s.capacity()), amountsOf(s.Used)
	for i, need := range amountsOf(s.Next.Needs) {
		free := max(total[i].n-used[i].n, 0)
		if need.n == 0 || total[i].n == 0 && !need.countable || free >= need.n {
			continue
		}
		return Wait{
			Code: WaitReserved,
			Message: fmt.Sprintf("execution %s at the head of the queue needs %s, %s free, and nothing passes it any more",
				s.Next.ID, need, need.are(free)),
			Release: "enough for execution " + s.Next.ID + ", which then goes first",
		}, true
	}
	return Wait{}, false
}

// overShare gives the reason if its user holds more than their share while others
// wait.
func (s Situation) overShare() (Wait, bool) {
	if s.Ahead.Others == 0 || s.Ahead.Rivals <= 0 {
		return Wait{}, false
	}
	total := amountsOf(s.capacity())
	var most amount
	var share float64
	for i, held := range amountsOf(s.UserUsed) {
		if total[i].n > 0 && float64(held.n)/float64(total[i].n) > share {
			most, share = held, float64(held.n)/float64(total[i].n)
			most.total = total[i].n
		}
	}
	if share <= 1/(1+s.Ahead.Rivals) {
		return Wait{}, false
	}
	user := cmp.Or(s.Execution.Request.User, DefaultUser)
	holds := fmt.Sprintf("%s of the %s", most.figure(), most.of(most.total))
	if most.n >= most.total {
		holds = most.whole()
	}
	return Wait{
		Code:    WaitShare,
		Message: fmt.Sprintf("user %s holds %s of the resource class, and users who hold less go first", user, holds),
		Release: "the end of some of what " + user + " runs, or a higher weight of the user",
	}, true
}

// lookAhead says about when it will be admitted.
func (s Situation) lookAhead(x *Explanation) {
	ahead, known := s.position(x.Waits)
	if known {
		x.Position = ahead + 1
	}
	if x.StartsAt = s.estimate(x.Waits); x.StartsAt.IsZero() || !known {
		return
	}
	x.Outlook = fmt.Sprintf("At the rate of the last minutes it starts in about %s.", span(x.StartsAt.Sub(s.Now)))
}

// needs returns what the execution holds while it is scheduled or running.
func (e *Execution) needs() topics.Requirements {
	r := e.Request.Requirements
	r.Slots = e.Slots()
	return r
}
