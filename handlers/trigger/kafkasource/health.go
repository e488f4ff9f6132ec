package kafkasource

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/trigger"
)

const (
	// groupGrace is for how long the group may be without this member before that is
	// told: members are thrown out and come back.
	groupGrace = 3 * time.Second
	// linkMemory is for how long a broker that could not be reached counts as such when
	// nobody tries it again.
	linkMemory = time.Minute
)

// health is what a member knows of its brokers, topics and group.
type health struct {
	mu sync.Mutex
	// surveyed is when it was last looked, survey what was found; next is when it will be
	// looked again, tries how often in vain.
	surveyed, next time.Time
	survey         error
	missing        []string
	ids            map[string][16]byte
	tries          int
	// group is why the group is without us, since groupSince; in says that it has taken
	// us in.
	group      error
	groupSince time.Time
	in         bool
	// links are the brokers whose last connection failed; those that are known by their
	// address only have negative numbers.
	links map[int32]link

	state trigger.State
	code  string
	since time.Time
}

type link struct {
	kafka.Connection
	at time.Time
}

func (h *health) begin(now time.Time) {
	h.links = make(map[int32]link)
	h.state, h.since = trigger.StateStarting, now
}

// connected notes an attempt to connect and reports whether it is worth a look.
func (h *health) connected(c kafka.Connection, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, failed := h.links[c.Broker]
	if c.Err != nil {
		h.links[c.Broker] = link{c, now}
		return !failed && h.survey == nil
	}
	delete(h.links, c.Broker)
	return failed || h.survey != nil
}

// joined notes whether the group has us, and reports whether that is worth a look.
func (h *health) joined(err error, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := err != nil && h.group == nil
	if news {
		h.groupSince = now
	}
	h.group, h.in = err, err == nil
	return news
}

// belongs reports whether the group has us.
func (h *health) belongs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.in
}

// observed notes what a survey found.
func (h *health) observed(f findings, now time.Time, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.surveyed, h.next = now, now.Add(next)
	h.survey, h.missing = f.err, f.missing
	if f.ids != nil {
		h.ids = f.ids
	}
	h.tries++
	if f.well() {
		h.tries = 0
	}
}

// topicID is the identity of a topic as of the last survey.
func (h *health) topicID(topic string) ([16]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, ok := h.ids[topic]
	return id, ok
}

// misses reports whether a topic did not exist as of the last survey.
func (h *health) misses(topic string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.missing, topic)
}

// attempts is how often it was looked in vain.
func (h *health) attempts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// into fills in the state of the member.
func (h *health) into(r *trigger.MemberReport, t *trigger.Compiled, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cause := h.cause(t, now)
	state, code := trigger.StateRunning, ""
	switch {
	case cause != nil:
		state, code = trigger.StateError, cause.Code
	case !h.in || h.surveyed.IsZero():
		state = trigger.StateStarting
	}
	if state != h.state || code != h.code {
		h.state, h.code, h.since = state, code, now
	}
	r.State, r.Cause, r.Since = h.state, cause, h.since
	if cause != nil {
		r.NextTry, r.Attempts = h.next, h.tries
	}
}

// cause is the first reason why the member as a whole, or a broker of it, stands.
func (h *health) cause(t *trigger.Compiled, now time.Time) *trigger.Cause {
	if h.survey != nil {
		return brokerCause(t, h.survey)
	}
	if h.group != nil && (lasting(h.group) || now.Sub(h.groupSince) >= groupGrace) {
		return groupCause(t, h.group)
	}
	if len(h.missing) > 0 {
		return missingCause(h.missing)
	}
	for _, id := range slices.Sorted(maps.Keys(h.links)) {
		if l := h.links[id]; id >= 0 && now.Sub(l.at) < linkMemory {
			return linkCause(t, l.Connection)
		}
	}
	return nil
}

// lasting reports whether an error of the group will not go away by joining again.
func lasting(err error) bool {
	lasts := []kafka.Trouble{
		kafka.TroubleFenced, kafka.TroubleGroup, kafka.TroubleAuthorization, kafka.TroubleAuthentication, kafka.TroubleCredentials,
	}
	return slices.Contains(lasts, kafka.TroubleOf(err))
}
