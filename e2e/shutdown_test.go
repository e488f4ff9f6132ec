package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// SIGTERM of everything at once in the middle of the work: what runs ends or is
// handed back, nothing is given up, and the next start finishes it all.
func TestShutdownUnderLoad(t *testing.T) {
	in := installReal(t, "worker.shutdown_grace=1s")
	serve := func(run string) *process {
		front := in.serve("front"+run, frontRoles)
		in.serve("projections"+run, "projections")
		in.worker("worker-1"+run, "5")
		in.worker("worker-2"+run, "5")
		for _, p := range in.alive() {
			p.ready()
		}
		return front
	}
	front := serve("")
	all := append(simple(40, "0.2"), simple(20, "3")...)
	for i, p := range all[40:] {
		p.request.IdempotencyKey = all[i].request.IdempotencyKey + "-long"
	}
	w := newWorkload(in, front.client())
	w.submit(all)
	w.until("much is under way", func() bool { return w.ended >= 5 && w.running() >= 5 })
	in.stopAll()
	assert.Zero(t, in.count(`SELECT count(*) FROM executions WHERE state = 'RUNNING'`), "the workers hand back what they cannot finish")
	assert.Positive(t, in.count(`SELECT count(*) FROM executions WHERE finished_at IS NULL`), "the stop came in the middle")

	w.client = serve("-again").client()
	w.finish()
	in.audit(all)
	in.results(w.client, all)
	in.undisturbed() // an orderly stop loses no lease
	in.stopAll()
}
