package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A worker that is stopped for longer than its lease and then goes on has lost its
// work: its programs were killed in time, and what it has to say counts no more.
func TestWorkerPausedBeyondItsLease(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t, quickLeases()...)
	front := in.serve("front", frontRoles+",projections").ready()
	paused := in.worker("worker-1", "8").ready()

	trace := traceFile(t, in.dir)
	var all []*program
	for _, p := range programs(200, trace) {
		if p.kind == outliving {
			all = append(all, p)
		}
	}
	w := newWorkload(in, front.client())
	w.submit(all)
	w.until("all run", func() bool { return len(readTrace(t, trace)) == len(all) })
	require.NoError(t, paused.child.Signal(syscall.SIGSTOP))
	held := in.leased("worker-1")
	other := in.worker("worker-2", "8").ready()
	w.finish() // by the other worker, while the first one cannot even try to stop anything
	require.NoError(t, paused.child.Signal(syscall.SIGCONT))
	await(t, startWithin, "the first worker reports in vain", func() bool {
		return strings.Count(paused.log(), "result of an attempt came too late") == held
	})
	in.audit(all)
	in.results(w.client, all)
	again := in.traces(trace, all)
	assert.Positive(t, held)
	assert.Equal(t, held, again, "what was held was run again, all of it, once")
	assert.True(t, paused.running() && other.running())
	in.stopAll()
}

// The process that admits and relays is killed in the middle of it; another one
// takes over both within their leases.
func TestCoordinatorKilled(t *testing.T) {
	in := installReal(t, quickLeases()...)
	victim := in.serve("front-1", frontRoles).ready()
	front := in.serve("front-2", frontRoles)
	in.worker("worker", "8")
	in.serve("projections", "projections")
	for _, p := range in.alive() {
		p.ready()
	}
	trace := traceFile(t, in.dir)
	all := programs(100, trace)
	w := newWorkload(in, front.client())
	w.submit(all[:len(all)/2])
	w.until("work is under way", func() bool { return w.ended >= 10 && w.running() > 0 })
	victim.sigkill()
	w.submit(all[len(all)/2:])
	w.finish()
	in.audit(all)
	in.results(w.client, all)
	in.traces(trace, all)
	in.stopAll()
}
