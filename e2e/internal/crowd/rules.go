package crowd

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/topics"
)

// The resource classes, each with its cap of slots, below what its workers have. The
// executions of the second one take processor time, too.
const (
	everyday    = topics.DefaultResourceClass
	heavy       = "heavy"
	everydayCap = 20
	heavyCap    = 6
	heavyCores  = 4
)

// The limits, below what the crowd asks for at its worst.
const (
	pacedRate, pacedBurst = 4, 3
	doorRate, doorBurst   = 1, 4
	teamMost              = 3
	allRate, allBurst     = 250, 200
)

const ageingStep = 2 * time.Second

// worker is a worker process and what it serves.
type worker struct {
	class string
	slots int
}

func workers() []worker { return []worker{{everyday, 16}, {everyday, 16}, {heavy, 8}} }

// settings are those of all processes. What they say about limits, rules judges.
func settings() string {
	return fmt.Sprintf(`
kafka: {session_timeout: 6s, heartbeat_interval: 500ms, rebalance_timeout: 10s}
postgres: {max_conns: 10}
worker: {lease: 4s, heartbeat: 1s, shutdown_grace: 3s}
coordinator:
  classes:
    default: {slots: %d}
    heavy: {slots: %d, cpu: %d}
  limits:
    paced: {per: user, when: 'labels.kind == "paced"', rate: %d/s, burst: %d}
    door: {per: user, when: 'labels.kind == "door"', rate: %d/s, burst: %d, action: reject}
    team: {per: key, key: labels.team, concurrency: %d}
    all: {per: tenant, rate: %d/s, burst: %d}
  ageing_step: %s
  max_deliveries: 1000
  start_limit: 10s
`, everydayCap, heavyCap, heavyCores, pacedRate, pacedBurst, doorRate, doorBurst, teamMost, allRate, allBurst, ageingStep)
}

// rules are what the settings promise.
func rules() history.Rules {
	return history.Rules{
		Capacity: map[string]history.Resources{
			everyday: {Slots: everydayCap}, heavy: {Slots: heavyCap, CPUMillis: heavyCores * 1000},
		},
		Limits: []history.Limit{
			{Name: "paced", Key: userOf(paced), Every: time.Second / pacedRate, Burst: pacedBurst},
			{Name: "door", Key: userOf(door), Every: time.Second / doorRate, Burst: doorBurst, AtQueue: true},
			{Name: "team", Key: teamOf, Concurrency: teamMost},
			{
				Name: "all", Key: func(l *history.Life) (string, bool) { return l.Request.Tenant, true },
				Every: time.Second / allRate, Burst: allBurst,
			},
		},
		// Locked rows are passed over, and what was queued last may be read late.
		PassedOver: 5 * time.Second,
		Settled:    true,
	}
}

// userOf counts the executions of one kind by user.
func userOf(kind string) func(l *history.Life) (string, bool) {
	return func(l *history.Life) (string, bool) {
		return l.Request.Tenant + "/" + l.Request.User, l.Request.Labels["kind"] == kind
	}
}

func teamOf(l *history.Life) (string, bool) {
	key := l.Request.Labels["team"]
	return key, key != ""
}

// rejections holds that only those who ask at the door are sent away, with the time
// after which to ask again.
func (d *drill) rejections(h history.History) {
	for _, l := range h.Lives {
		for _, e := range l.Events {
			if e.Type != history.Rejected {
				continue
			}
			after := time.Duration(e.RetryAfter)
			if l.Request.Labels["kind"] != door || e.Reason != topics.RejectedRateLimited || after <= 0 || after > time.Second/doorRate {
				d.find("rejected", l.ID, "of kind %s for %q, to be asked again after %s", l.Request.Labels["kind"], e.Reason, after)
			}
		}
	}
}
