package configs

import "time"

// workflows checks what bounds the workflow engine.
func (v *validation) workflows() {
	w := v.c.Workflows
	number(v, "workflows.max_variables_bytes", w.MaxVariablesBytes, KiB, 64*MiB)
	number(v, "workflows.transactions", w.Transactions, 1, 64)
	number(v, "workflows.transaction_size", w.TransactionSize, 1, 1000)
	number(v, "workflows.queue", w.Queue, 1, 1_000_000)
	number(v, "workflows.max_steps", w.MaxSteps, 10, 1_000_000)
	if lease := v.c.Jobs.Lease; lease > 0 && (lease < time.Second || lease > time.Hour) {
		v.fault("jobs.lease", "must be between 1s and 1h, not %s", formatDuration(lease))
	}
}
