package retention

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is what decides for how long an event can be met again, at another offset.
type Window struct {
	// Inbox is for how long events are known, Outbox how long they can be republished.
	Inbox, Outbox time.Duration
	// Topics is how long topics keep their records, by name; negative: for ever.
	Topics map[string]time.Duration
}

// Check returns what somebody should change, or nothing. An event that was written
// to the outbox is republished for as long as it is there, and the copy, like a
// redriven dead letter or what lies behind a seek, is read for as long as its topic
// keeps it. So the inbox has to remember for both together.
func (w Window) Check() []string {
	var warnings []string
	var endless []string
	var longest time.Duration
	name := ""
	for topic, keeps := range w.Topics {
		switch {
		case keeps < 0:
			endless = append(endless, topic)
		case keeps > longest || keeps == longest && topic < name:
			longest, name = keeps, topic
		}
	}
	if need := w.Outbox + longest; w.Inbox < need {
		warnings = append(warnings, fmt.Sprintf(
			"retention.inbox is %s, but an event can be met again for %s (retention.outbox %s and the %s for which topic %s keeps it), and would be applied twice: set retention.inbox to %s or more",
			days(w.Inbox), days(need), days(w.Outbox), days(longest), name, days(need)))
	}
	if len(endless) > 0 {
		slices.Sort(endless)
		warnings = append(warnings, fmt.Sprintf(
			"records are kept for ever in %s: what is read there again after more than retention.inbox (%s), such as after a seek, is applied twice unless its consumer is guarded by state: set retention.ms",
			strings.Join(endless, ", "), days(w.Inbox)))
	}
	return warnings
}

// days writes whole days as such.
func days(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
