package crowd

import (
	"time"

	"github.com/millrace/millrace/internal/history"
)

// capacity is how many slots of the class may be in use at once; the workers have
// more.
const capacity = 20

const (
	workers     = 2
	workerSlots = 16
	ageingStep  = 2 * time.Second
)

// settings of all processes. What they say about limits, rules judges.
const settings = `
kafka: {session_timeout: 6s, heartbeat_interval: 500ms, rebalance_timeout: 10s}
postgres: {max_conns: 10}
worker: {lease: 4s, heartbeat: 1s, shutdown_grace: 3s}
coordinator:
  concurrency: {default: 20}
  ageing_step: 2s
  max_deliveries: 1000
  start_limit: 10s
`

// rules are what the settings promise.
func rules() history.Rules {
	return history.Rules{
		Capacity: map[string]history.Resources{class: {Slots: capacity}},
		// Locked rows are passed over, and what was queued last may be read late.
		PassedOver: 5 * time.Second, AgeingStep: ageingStep,
		Settled: true,
	}
}
