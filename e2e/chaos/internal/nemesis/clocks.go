package nemesis

import (
	"context"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

func clockCases() []Case {
	return []Case{
		{ID: "H1", Title: "clocks are five minutes ahead, or set back by as much", Lane: Alone, WrongClock: true, act: wrongClocks},
	}
}

// wrongClocks has coordinators and workers take over from each other while half of
// the processes live in the future and the clocks of the others are set back under
// leases that they hold. Only the database's clock decides, so nothing may come of it.
func wrongClocks(ctx context.Context, l *lane) error {
	l.fault("the clocks of one link are five minutes ahead, those of the other are set back by five minutes 12 s after the start")
	l.hold(ctx, 10*time.Second, 12*time.Second) // over the step back
	for _, hurt := range []func() error{
		func() error { return freeze(ctx, l, world.Coordinator, 11*time.Second, 14*time.Second) },
		func() error { return killRepeatedly(ctx, l, world.Worker, 2) },
		func() error { return killRepeatedly(ctx, l, world.Coordinator, 2) },
		func() error { return freeze(ctx, l, world.Worker, 7*time.Second, 10*time.Second) },
		func() error { return killRepeatedly(ctx, l, world.Relay, 2) },
	} {
		if err := hurt(); err != nil || ctx.Err() != nil {
			return err
		}
		l.hold(ctx, time.Second, 3*time.Second)
	}
	l.hold(ctx, 12*time.Second, 14*time.Second) // the clocks of those that were killed are set back, too
	return nil
}
