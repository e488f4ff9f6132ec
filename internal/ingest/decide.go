package ingest

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/trigger"
)

// Targets are told in the inbox as "<kind>/<id>". An instance whose start is not known to
// have happened is a promise: whoever meets it starts that very instance.
const (
	targetExecution = trigger.KindExecution + "/"
	targetInstance  = trigger.KindInstance + "/"
	targetPromise   = "starting/"
)

// facts are what a transaction knows of the messages.
type facts struct {
	// fresh are the keys that this transaction has entered, known the targets of those that
	// were there before.
	fresh map[inbox.Key]bool
	known map[inbox.Key]string
	// room is how many targets may still be made; negative: any number.
	room int
}

// fate is what becomes of a message.
type fate struct {
	Outcome
	// first is the item of this call that the message repeats, or nil.
	first *item
	// made says that the target is to be made, under the id of the item.
	made bool
	// letter says that the message becomes a dead letter.
	letter bool
}

// decide says what becomes of messages, in their order, up to the first that can neither
// be taken nor be passed over: then there are fates of those before it, and blocked.
func decide(t *trigger.Compiled, items []*item, f facts) (fates []fate, blocked *BlockedError) {
	// made are the keys of what is made by this call.
	made := map[inbox.Key]*item{}
	for i, it := range items {
		before, again := f.metBefore(it, made)
		switch {
		case again:
			fates = append(fates, before)
			continue
		case it.refusal == nil && f.room == 0:
			it = it.beyond(t)
			if t.LimitAction == trigger.LimitStall || it.Letter != "" {
				return fates, &BlockedError{Index: i, Cause: limitCause(t), Err: it.refusal}
			}
		}
		if it.refusal != nil {
			poison := it.refusal.Code != codeLimit
			if it.stalls(t) && poison {
				return fates, &BlockedError{Index: i, Cause: poisonCause(it.refusal), Err: it.refusal}
			}
			fates = append(fates, fate{Outcome: Outcome{Status: Refused, Kind: t.Kind(), Err: it.refusal}, letter: it.Place != nil})
			continue
		}
		for _, k := range it.keys {
			made[k] = it
		}
		f.room--
		fates = append(fates, fate{Outcome: Outcome{Status: Created, Kind: t.Kind(), ID: it.id.String()}, made: true})
	}
	return fates, nil
}

// metBefore returns the fate of a message that is a repetition. One that meets a promise
// is none: it is to keep it.
func (f facts) metBefore(it *item, made map[inbox.Key]*item) (before fate, again bool) {
	for _, k := range it.keys {
		if first := made[k]; first != nil {
			return fate{Outcome: Outcome{Status: Duplicate, Kind: first.kind(), ID: first.id.String()}, first: first}, true
		}
		if f.fresh[k] {
			continue
		}
		target := f.known[k]
		if id, promised := promise(target); promised {
			it.id = id
			continue
		}
		if kind, id, _ := strings.Cut(target, "/"); !again {
			before.Outcome = Outcome{Status: Duplicate, Kind: kind, ID: id}
		}
		again = true
	}
	return before, again
}

// promise returns the instance that is to be started under a key, if it is not known to
// have been.
func promise(target string) (uuid.UUID, bool) {
	id, promised := strings.CutPrefix(target, targetPromise)
	if !promised {
		return uuid.Nil, false
	}
	parsed, err := uuid.Parse(id)
	return parsed, err == nil
}

func (it *item) kind() string {
	if it.start.DefinitionID != "" {
		return trigger.KindInstance
	}
	return trigger.KindExecution
}

// beyond is the message refused for the limit.
func (it *item) beyond(t *trigger.Compiled) *item {
	refused := *it
	refused.refusal = &Refusal{codeLimit, limitCause(t).Message}
	return &refused
}

// stalls says whether the message, if it is poison, stands in the way of those behind it.
// A redrive does not: its letter is filed again.
func (it *item) stalls(t *trigger.Compiled) bool {
	return it.Place != nil && it.Letter == "" && t.OnPoison == trigger.PoisonStall
}

const codeLimit = "limit_reached"

func limitCause(t *trigger.Compiled) trigger.Cause {
	return trigger.Cause{
		Code:    codeLimit,
		Message: fmt.Sprintf("%d targets of trigger %s are unfinished, as many as may be (limits.open)", t.Limits.Open, t.ID),
		Hint:    "It goes on when some of them have ended. Cancel them, raise limits.open, or set limit_action to queue.",
	}
}

func poisonCause(r *Refusal) trigger.Cause {
	return trigger.Cause{
		Code: "poison", Message: r.Message,
		Hint: "Change the target's mapping so that it fits the message, or set on_poison to dead_letter and redrive it later.",
	}
}

// corrections are what has to be changed about keys, once it is decided what becomes of
// the messages.
type corrections struct {
	retarget []inbox.Claim
	forget   []inbox.Key
}

// correct compares the targets under which keys were claimed with what was made. target is
// that of an item that is made.
func correct(items []*item, fates []fate, f facts, claims []inbox.Claim, target func(*item) string) corrections {
	want := map[inbox.Key]string{}
	for i, ft := range fates {
		text := ft.Kind + "/" + ft.ID
		switch {
		case ft.made:
			text = target(items[i])
		case ft.first != nil:
			text = target(ft.first)
		case ft.Status != Duplicate || ft.ID == "":
			text = ""
		}
		for _, k := range items[i].keys {
			if want[k] == "" && (ft.made || ft.Status == Duplicate) {
				want[k] = text
			}
		}
	}
	claimed := map[inbox.Key]string{}
	for _, c := range claims {
		if _, ok := claimed[c.Key]; !ok {
			claimed[c.Key] = c.Target
		}
	}
	var c corrections
	for _, claim := range claims {
		k := claim.Key
		was, open := claimed[k]
		if !open {
			continue
		}
		delete(claimed, k)
		if !f.fresh[k] {
			was = f.known[k]
		}
		_, promised := promise(was)
		switch text, decided := want[k]; {
		case f.fresh[k] && !decided:
			c.forget = append(c.forget, k)
		case decided && text != was && (f.fresh[k] || promised):
			c.retarget = append(c.retarget, inbox.Claim{Key: k, Target: text})
		}
	}
	return c
}

// claimsOf are the keys of items, with what each is to become.
func claimsOf(items []*item, target func(*item) string) []inbox.Claim {
	var claims []inbox.Claim
	for _, it := range items {
		for _, k := range it.keys {
			claims = append(claims, inbox.Claim{Key: k, Target: target(it)})
		}
	}
	return claims
}
