package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// One of each kind of program goes through three processes.
func TestSmoke(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t, quickLeases()...)
	front, _, views := in.serve("front", frontRoles), in.worker("worker", "8"), in.serve("projections", "projections")
	for _, p := range in.alive() {
		p.ready()
	}
	assert.Empty(t, views.address("api"))

	trace := traceFile(t, in.dir)
	all := programs(1, trace)
	w := newWorkload(in, front.client())
	w.submit(all)
	w.finish()
	in.audit(all)
	in.results(front.client(), all)
	in.traces(trace, all)
	in.undisturbed()
	in.stopAll()
}

// undisturbed checks that no lease ran out: where nothing was killed, none may.
func (in *installation) undisturbed() {
	in.t.Helper()
	assert.Zero(in.t, in.count(`SELECT count(*) FROM event_log WHERE type = 'millrace.execution.lease_expired.v1'`), "leases that ran out with nothing killed")
}

// Much output, written while programs end, holds up neither results nor renewals
// for as long as a lease.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	leases := quickLeases()
	if raceDetector {
		// With the race detector one write of output takes so long that 4 s are not
		// enough for it, and while it holds the row its lease cannot be renewed.
		leases = []string{"worker.lease=30s", "worker.heartbeat=1s"}
	}
	in := installEmbedded(t, leases...)
	front := in.serve("front", frontRoles+",projections").ready()
	in.worker("worker", "8").ready()
	var all []*program
	trace := traceFile(t, in.dir)
	for _, p := range programs(800, trace) {
		if p.kind == bigOutputs {
			all = append(all, p)
		}
	}
	w := newWorkload(in, front.client())
	w.submit(all)
	w.finish()
	in.audit(all)
	in.results(w.client, all)
	in.traces(trace, all)
	in.undisturbed()
	in.stopAll()
}

// Two processes of each kind share the work of one installation, and either API
// answers for all of it.
func TestRolesInSeveralProcesses(t *testing.T) {
	in := installReal(t)
	fronts := []*process{in.serve("front-1", frontRoles), in.serve("front-2", frontRoles)}
	in.worker("worker-1", "4")
	in.worker("worker-2", "4")
	in.serve("projections-1", "projections")
	in.serve("projections-2", "projections")
	for _, p := range in.alive() {
		p.ready()
	}

	all := simple(100, "0.1")
	clients := []*client.Client{fronts[0].client(), fronts[1].client()}
	w := newWorkload(in, clients[0])
	for i, p := range all { // one by one, in turns
		e, err := clients[i%2].Submit(t.Context(), p.request)
		require.NoError(t, err)
		w.accepted([]*program{p}, []string{e.ID})
	}
	w.finish()
	in.audit(all)

	for i, c := range clients {
		in.results(c, all)
		listed := map[string]bool{}
		for e, err := range c.List(t.Context(), client.Filter{States: []string{client.Completed}, PageSize: 30}) {
			require.NoError(t, err)
			assert.False(t, listed[e.ID], "%s is listed twice", e.ID)
			listed[e.ID] = true
		}
		assert.Len(t, listed, len(all), "list of API %d", i)
		for _, p := range all {
			events, err := c.Events(t.Context(), p.id)
			require.NoError(t, err)
			assert.Len(t, events, in.count(`SELECT version FROM executions WHERE id = $1`, p.id))
			assert.True(t, events[len(events)-1].Final(), "last event of %s", p.id)
		}
	}
	for i := range 2 {
		assert.Positive(t, in.count(`SELECT count(*) FROM executions WHERE worker = $1`, fmt.Sprintf("worker-%d", i+1)), "share of worker %d", i+1)
	}
	in.undisturbed()
	in.stopAll()
}
