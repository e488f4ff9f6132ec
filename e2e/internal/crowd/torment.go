package crowd

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/e2e/internal/servers"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/testenv/program"
)

// The leases of coordinators last 10 s; one that is frozen for longer comes back as
// a zombie.
const (
	freezeLow  = 11 * time.Second
	freezeHigh = 13 * time.Second
	// takeOverWithin is more than a lease, on a machine that is busy.
	takeOverWithin = time.Minute
)

const termination = syscall.SIGTERM

func signal(p *program.Process, s syscall.Signal) error { return p.Signal(s) }

// torment freezes and kills, in turn, whichever coordinator admits at that moment,
// until the work is done, and each at least once. It waits until another one has taken
// over and lets that one work for a while.
func (d *drill) torment(ctx context.Context, done <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(d.Seed, 2))
	last := int64(0)
	for turn := 0; d.Hurts == 0 || turn < d.Hurts; turn++ {
		name, err := d.next(ctx, &last, done, turn)
		if err != nil {
			return err
		}
		// The more there is to do, the longer they are left alone.
		worked := time.Duration(500+rng.IntN(500+d.Executions/4)) * time.Millisecond
		if !pause(ctx, done, worked) && turn >= 2 {
			return ctx.Err()
		}
		if (turn+int(d.Seed%2))%2 == 0 {
			err = d.freeze(ctx, name, freezeLow+time.Duration(rng.Int64N(int64(freezeHigh-freezeLow))))
		} else {
			err = d.kill(ctx, name, time.Duration(rng.IntN(1500))*time.Millisecond)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// next returns the coordinator that admits the everyday class, under another lease
// than the last one. When the work is done there may be none.
func (d *drill) next(ctx context.Context, last *int64, done <-chan struct{}, turn int) (string, error) {
	name := coordinator(turn % d.Coordinators)
	err := servers.Until(ctx, takeOverWithin, "a coordinator admits", func() (bool, error) {
		select {
		case <-done:
			return true, nil
		default:
		}
		var owner string
		var token int64
		err := d.in.db.QueryRow(ctx, `SELECT owner, token FROM leases WHERE name = $1 AND token > $2 AND expires_at > clock_timestamp()`,
			store.AdmitterLease(everyday), *last).Scan(&owner, &token)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err == nil {
			name, _, _ = strings.Cut(owner, ".")
			*last = token
		}
		return err == nil, err
	})
	return name, err
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
