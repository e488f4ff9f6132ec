package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// 200 real programs are submitted while a worker, the broker and the database are
// killed one after the other.
func TestRealInput(t *testing.T) {
	in := installReal(t, quickLeases()...)
	front := in.serve("front", frontRoles)
	in.serve("projections", "projections")
	victim := in.worker("worker-1", "6")
	in.worker("worker-2", "6")
	for _, p := range in.alive() {
		p.ready()
	}
	trace := traceFile(t, in.dir)
	all := programs(200, trace)
	require.Len(t, all, 200)
	w := newWorkload(in, front.client())
	began := time.Now()
	phase := func(what string) {
		t.Logf("%5.1f s: %s; %d ended, %v", time.Since(began).Seconds(), what, w.ended, w.sum())
	}

	w.submit(all[:130])
	// Of the seven programs that outlive their lease worker-2 has room for six.
	w.until("the first worker has work, some is done", func() bool {
		return w.ended >= 25 && in.count(`SELECT count(*) FROM executions WHERE state = 'RUNNING' AND worker = 'worker-1'
			AND request->'labels'->>'kind' = $1`, outliving) > 0
	})
	phase("kill a worker")
	victim.sigkill()
	lost := in.leased("worker-1")
	in.worker("worker-3", "6").ready()

	w.until("a third is done", func() bool { return w.ended >= 65 && w.running() > 0 })
	phase("kill the broker")
	require.NoError(t, in.kafka.Kill(0))
	w.submit(all[130:180]) // accepted, as Kafka is not needed for that
	require.NoError(t, in.kafka.Restart(t.Context(), 0))
	phase("the broker is back")

	w.until("more is done", func() bool { return w.ended >= 100 && (w.running() > 0 || len(w.open) == 0) })
	phase("kill the database")
	in.postgres.Kill()
	last := all[180:]
	requests := make([]client.Request, len(last))
	for i, p := range last {
		requests[i] = p.request
	}
	_, err := submitOnce(t.Context(), w.client, requests)
	require.Error(t, err, "nothing can be accepted without the database")
	var back sync.WaitGroup
	back.Go(in.postgres.Start)
	w.submit(last) // again and again, with the same idempotency keys
	back.Wait()
	phase("the database is back")

	w.finish()
	phase("all have ended")
	in.audit(all)
	in.results(front.client(), all)
	in.traces(trace, all)
	phase("checked")

	// The loss of the worker was seen as what it is.
	assert.Positive(t, lost)
	assert.GreaterOrEqual(t, in.count(`SELECT count(DISTINCT event_id) FROM event_log WHERE type = 'millrace.execution.lease_expired.v1'`), lost)
	t.Logf("%d executions lost their worker when it was killed, %d leases ran out in all", lost,
		in.count(`SELECT count(DISTINCT event_id) FROM event_log WHERE type = 'millrace.execution.lease_expired.v1'`))
	in.stopAll()
}

// leased is how many executions a worker holds.
func (in *installation) leased(worker string) int {
	return in.count(`SELECT count(*) FROM executions WHERE state = 'RUNNING' AND worker = $1`, worker)
}
