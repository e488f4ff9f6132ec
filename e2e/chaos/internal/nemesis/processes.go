package nemesis

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

func processCases() []Case {
	return []Case{
		{ID: "A1", Title: "API processes are killed after the commit, before the answer", Lane: Processes, act: killAPI},
		{ID: "A2", Title: "relays are killed between claim, publish and mark", Lane: Processes, act: killRelay},
		{ID: "A3", Title: "a relay is frozen for longer than its lease and goes on", Lane: Processes, act: freezeRelay},
		{ID: "A4", Title: "consumers are killed before, in and after their transaction", Lane: Processes, act: killConsumer},
		{ID: "A6", Title: "coordinators are killed, one is frozen for longer than its lease", Lane: Processes, act: hurtCoordinator},
		{ID: "A7", Title: "workers are killed, one is frozen for longer than its lease", Lane: Processes, act: hurtWorker},
		{ID: "A8", Title: "everything is restarted in order, with handlers at work", Lane: Processes, act: rollingRestart},
		{ID: "F1", Title: "consumers join and leave", Lane: Processes, act: joinAndLeave},
		{ID: "F2", Title: "partitions are revoked from handlers that take longer than that may", Lane: Processes, act: revokeSlow},
	}
}

// restart brings a member back; the run does not wait for it to be ready.
func restart(m *world.Member) error { return m.Start() }

func killAPI(ctx context.Context, l *lane) error {
	for range 2 + l.rng.IntN(2) {
		m := l.pick(world.API)
		if m == nil || ctx.Err() != nil {
			return nil
		}
		defer m.Release()
		heal := l.World.Links.Inject(m.Name, world.API, -1, world.Silence(world.ToClient))
		l.hold(ctx, 200*time.Millisecond, time.Second)
		l.fault("kill %s, whose answers got lost", m.Name)
		err := m.Kill()
		heal()
		if err := errors.Join(err, restart(m)); err != nil {
			return err
		}
		l.hold(ctx, time.Second, 3*time.Second)
	}
	return nil
}

// killRepeatedly kills members of a part on links where the database answers late,
// so that the moments between two statements are wide.
func killRepeatedly(ctx context.Context, l *lane, part string, times int) error {
	for range times {
		if ctx.Err() != nil {
			return nil
		}
		m := l.pick(part)
		if m == nil {
			return nil
		}
		err := killSlowed(ctx, l, m)
		m.Release()
		if err != nil {
			return err
		}
		l.hold(ctx, 200*time.Millisecond, 2*time.Second)
	}
	return nil
}

func killSlowed(ctx context.Context, l *lane, m *world.Member) error {
	server := world.Postgres
	if l.rng.IntN(3) == 0 {
		server = world.Kafka
	}
	// Late requests widen the time before a statement takes effect, late answers that
	// after it.
	stream := []string{world.ToServer, world.ToClient}[l.rng.IntN(2)]
	heal := l.World.Links.Inject(m.Link, server, -1, world.Latency(stream, l.between(20*time.Millisecond, 400*time.Millisecond)))
	l.hold(ctx, 300*time.Millisecond, 2*time.Second)
	l.fault("kill %s, for which data %s of %s are late", m.Name, stream, server)
	err := m.Kill()
	heal()
	l.hold(ctx, 0, time.Second)
	return errors.Join(err, restart(m))
}

func killRelay(ctx context.Context, l *lane) error {
	for range 2 {
		if err := killUnmarked(ctx, l); err != nil {
			return err
		}
		if err := killRepeatedly(ctx, l, world.Relay, 1+l.rng.IntN(2)); err != nil {
			return err
		}
	}
	return nil
}

// killUnmarked kills a relay whose publishing works while what it has to say to the
// database does not arrive: what Kafka has acknowledged is not marked, and the next
// owner of the shards has to publish it again.
func killUnmarked(ctx context.Context, l *lane) error {
	m := l.pick(world.Relay)
	if m == nil || ctx.Err() != nil {
		return nil
	}
	defer m.Release()
	// Its connections of the next second are half-open at different moments.
	heal := l.World.Links.Inject(m.Link, world.Postgres, -1, world.Latency(world.ToServer, time.Second))
	l.hold(ctx, 1100*time.Millisecond, 2500*time.Millisecond)
	l.fault("kill %s between publish and mark", m.Name)
	err := m.Kill()
	heal()
	l.hold(ctx, 0, time.Second)
	return errors.Join(err, restart(m))
}

func killConsumer(ctx context.Context, l *lane) error {
	return killRepeatedly(ctx, l, world.Consumer, 3+l.rng.IntN(4))
}

// freeze stops a member of a part with SIGSTOP for longer than it may hold
// anything, and lets it go on.
func freeze(ctx context.Context, l *lane, part string, low, high time.Duration) error {
	m := l.pick(part)
	if m == nil {
		return nil
	}
	defer m.Release()
	// Something is under way when it freezes.
	heal := l.World.Links.Inject(m.Link, world.Kafka, -1, world.Latency(world.ToClient, 200*time.Millisecond))
	l.hold(ctx, 200*time.Millisecond, 600*time.Millisecond)
	l.fault("freeze %s", m.Name)
	err := m.Signal(syscall.SIGSTOP)
	heal()
	l.hold(ctx, low, high)
	l.note("thaw %s", m.Name)
	return errors.Join(err, m.Signal(syscall.SIGCONT))
}

// Leases of relays and coordinators last 10 s.
func freezeRelay(ctx context.Context, l *lane) error {
	return freeze(ctx, l, world.Relay, 11*time.Second, 15*time.Second)
}

func hurtCoordinator(ctx context.Context, l *lane) error {
	if l.rng.IntN(2) == 0 {
		return freeze(ctx, l, world.Coordinator, 11*time.Second, 14*time.Second)
	}
	return killRepeatedly(ctx, l, world.Coordinator, 1+l.rng.IntN(3))
}

func hurtWorker(ctx context.Context, l *lane) error {
	if l.rng.IntN(2) == 0 {
		return freeze(ctx, l, world.Worker, 7*time.Second, 10*time.Second)
	}
	return killRepeatedly(ctx, l, world.Worker, 1+l.rng.IntN(3))
}

// rollingRestart stops every fixed member in order and starts it again.
func rollingRestart(ctx context.Context, l *lane) error {
	l.Producer.MakeSlow(6, 3*time.Second)
	for _, i := range l.rng.Perm(len(l.World.Members)) {
		m := l.World.Members[i]
		if ctx.Err() != nil {
			return nil
		}
		if !m.Fixed || !m.Take() {
			continue
		}
		l.fault("restart %s in order", m.Name)
		quiet := l.alone()
		err := m.Stop(context.WithoutCancel(ctx))
		if err != nil && quiet && l.alone() {
			l.complain("%v", err)
		} else if err != nil {
			l.note("%v", err)
		}
		err = restart(m)
		m.Release()
		if err != nil {
			return err
		}
		l.hold(ctx, time.Second, 3*time.Second)
	}
	return nil
}

// joinAndLeave has all consumers there are, then one, then two, then all; and in
// the end those that belong there.
func joinAndLeave(ctx context.Context, l *lane) error {
	members := l.World.Part(world.Consumer)
	var mine []*world.Member
	for _, m := range members {
		if m.Take() {
			defer m.Release()
			mine = append(mine, m)
		}
	}
	defer func() {
		for _, m := range mine {
			_ = l.present(ctx, m, m.Fixed)
		}
	}()
	for _, n := range []int{len(mine), 1, 2, len(mine)} {
		if ctx.Err() != nil {
			return nil
		}
		l.fault("%d consumers", n)
		for i, at := range l.rng.Perm(len(mine)) {
			if err := l.present(ctx, mine[at], i < n); err != nil {
				return err
			}
		}
		l.hold(ctx, 2*time.Second, 4*time.Second)
	}
	return nil
}

// present has a member run, or not.
func (l *lane) present(ctx context.Context, m *world.Member, there bool) error {
	if there {
		return m.Start()
	}
	if !m.Running() {
		return nil
	}
	if l.rng.IntN(4) == 0 {
		return m.Kill()
	}
	quiet := l.alone()
	if err := m.Stop(context.WithoutCancel(ctx)); err != nil && quiet && l.alone() {
		return err
	}
	return nil
}

// revokeSlow makes handlers that do not mind their context, for longer than a
// consumer drains (10 s) and a rebalance waits (15 s), and then a rebalance.
func revokeSlow(ctx context.Context, l *lane) error {
	l.Producer.MakeSlow(2, 18*time.Second)
	l.hold(ctx, time.Second, 2*time.Second)
	for _, m := range l.World.Part(world.Consumer) {
		if m.Fixed || !m.Take() {
			continue
		}
		defer m.Release()
		l.fault("%s joins while handlers are slow", m.Name)
		if err := m.Start(); err != nil {
			return err
		}
		l.hold(ctx, 17*time.Second, 20*time.Second)
		return l.present(ctx, m, false)
	}
	return nil
}
