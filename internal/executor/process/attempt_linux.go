package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
)

// shimOverdue is how long after the end of the lease the worker waits for a shim
// before it kills it: one that somebody has stopped cannot do its duty.
const shimOverdue = 2 * time.Second

// attempt is the worker's side of one shim.
type attempt struct {
	start  startOrder
	grace  time.Duration
	shim   *os.Process
	pipes  *pipes
	orders *json.Encoder

	cause   error         // why the context ended, once it did
	overdue bool          // the shim had to be killed after the end of the lease
	ended   chan struct{} // closed when the shim is gone

	// Valid after ended.
	status *os.ProcessState
	last   report // the shim's last word
}

// begin starts the shim and everything that moves bytes.
func begin(start startOrder, stdin []byte, output *capture.Capture) (*attempt, error) {
	p, err := openPipes(len(stdin) > 0)
	if err != nil {
		return nil, err
	}
	shim, err := startShim(p)
	if err != nil {
		p.close()
		return nil, err
	}
	a := &attempt{
		start:  start,
		shim:   shim,
		pipes:  p,
		orders: json.NewEncoder(p.orders),
		ended:  make(chan struct{}),
	}
	p.pump(stdin, output)
	go a.listen()
	return a, nil
}

// startShim starts the own binary as a supervisor, in a session of its own, so
// that an interrupt from the worker's terminal does not reach it, and with an
// empty environment. It takes the far ends of the pipes.
func startShim(p *pipes) (*os.Process, error) {
	defer p.closeFar()
	shim, err := os.StartProcess(selfExe, []string{shimName}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: p.far(),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start shim: %w", err)
	}
	return shim, nil
}

// listen reads reports until the shim is gone, then reaps it.
func (a *attempt) listen() {
	defer close(a.ended)
	dec := json.NewDecoder(a.pipes.reports)
	for {
		var r report
		if dec.Decode(&r) != nil {
			break
		}
		a.last = r
	}
	a.status, _ = a.shim.Wait()
}

// supervise keeps the shim's deadline up to date and passes on a stop, until the
// shim is gone.
func (a *attempt) supervise(ctx context.Context, lease executor.Lease) {
	first := order{Start: &a.start}
	if !a.send(first, lease) {
		a.abandonShim()
		return
	}
	done := ctx.Done()
	for {
		moved := lease.Extended() // before Deadline, so that no move is missed
		a.send(order{Deadline: bootAt(lease.Deadline())}, lease)
		overdue := time.NewTimer(time.Until(lease.Deadline()) + shimOverdue)
		select {
		case <-a.ended:
			overdue.Stop()
			return
		case <-moved:
		case <-done:
			done = nil
			a.cause = context.Cause(ctx)
			a.send(a.stopOrder(), lease)
		case <-overdue.C:
			a.overdue = true
			a.abandonShim()
			return
		}
		overdue.Stop()
	}
}

// stopOrder is how the attempt is stopped for its cause. A lost lease leaves no
// time to be polite: another attempt may be running already.
func (a *attempt) stopOrder() order {
	if errors.Is(a.cause, executor.ErrLeaseLost) {
		return order{Kill: true}
	}
	grace := int64(a.grace)
	return order{Stop: &grace}
}

// send gives an order. A shim that does not read, because somebody has stopped
// it, holds the worker up no longer than its lease.
func (a *attempt) send(o order, lease executor.Lease) bool {
	_ = a.pipes.orders.SetWriteDeadline(lease.Deadline().Add(shimOverdue))
	return a.orders.Encode(o) == nil
}

// abandonShim kills a shim that does not do its duty. The program dies with it.
func (a *attempt) abandonShim() {
	_ = a.shim.Kill()
	<-a.ended
}

// finish makes sure that nothing is left of the attempt, and takes in the last
// output.
func (a *attempt) finish() {
	if !a.last.final() {
		killMarked(a.start.Dir)
	}
	a.pipes.drain()
	a.pipes.close()
}
