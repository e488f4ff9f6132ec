package crowd

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/testenv/program"
)

// The leases of coordinators last 10 s; one that is frozen for longer comes back as
// a zombie.
const (
	freezeLow  = 11 * time.Second
	freezeHigh = 13 * time.Second
)

const termination = syscall.SIGTERM

func signal(p *program.Process, s syscall.Signal) error { return p.Signal(s) }

// torment kills and freezes the coordinators in turn until the work is done, at least
// once around.
func (d *drill) torment(ctx context.Context, done <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(d.Seed, 2))
	for turn := 0; ; turn++ {
		// The first one is hurt as soon as there is something to lose.
		if !pause(ctx, done, time.Duration(500+rng.IntN(1500))*time.Millisecond) && turn >= 2 {
			return ctx.Err()
		}
		name := coordinator(turn % d.Coordinators)
		var err error
		// Each of them is frozen and killed in turn.
		if (turn+turn/d.Coordinators+int(d.Seed%2))%2 == 0 {
			err = d.freeze(ctx, name, freezeLow+time.Duration(rng.Int64N(int64(freezeHigh-freezeLow))))
		} else {
			err = d.kill(ctx, name, time.Duration(rng.IntN(1500))*time.Millisecond)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// freeze stops a coordinator with SIGSTOP and lets it go on.
func (d *drill) freeze(ctx context.Context, name string, long time.Duration) error {
	d.note("freeze %s for %s", name, long.Round(100*time.Millisecond))
	d.report.Freezes++
	p := d.in.member(name)
	if err := signal(p, syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, nil, long)
	d.note("thaw %s", name)
	return signal(p, syscall.SIGCONT)
}

// kill ends a coordinator with SIGKILL and starts it again.
func (d *drill) kill(ctx context.Context, name string, gone time.Duration) error {
	d.note("kill %s", name)
	d.report.Kills++
	if err := d.in.member(name).Kill(); err != nil {
		return err
	}
	pause(ctx, nil, gone)
	if err := d.in.start(name, "coordinator,maintenance"); err != nil {
		return err
	}
	return d.in.ready(ctx, name)
}

// pause waits and reports whether nothing ended the wait.
func pause(ctx context.Context, done <-chan struct{}, long time.Duration) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return false
	case <-t.C:
		return true
	}
}
