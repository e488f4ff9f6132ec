package nemesis

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

func databaseCases() []Case {
	full := Case{ID: "C5", Title: "the disk of PostgreSQL is full", Lane: Alone, SmallDisk: 1024, act: fillDisk}
	if os.Geteuid() != 0 {
		full.Skip = "a small disk can be mounted by root only"
	}
	return []Case{
		{ID: "C1", Title: "PostgreSQL is killed, or stopped at once, and recovers", Lane: Servers, act: killPostgres},
		{ID: "C2", Title: "backends are terminated, and commits are made whose answer is lost", Lane: Servers, act: terminateBackends},
		{ID: "C3", Title: "locks, deadlocks, statement timeouts, too many connections", Lane: Servers, act: obstruct},
		{ID: "C4", Title: "a transaction stays open and holds back every vacuum", Lane: Servers, act: stayOpen},
		full,
		{ID: "C6", Title: "transaction pooling", Lane: Alone, Skip: "PgBouncer is not part of the harness; C2 takes the session state away"},
	}
}

func killPostgres(ctx context.Context, l *lane) error {
	for range 1 + l.rng.IntN(3) {
		if ctx.Err() != nil {
			return nil
		}
		if err := l.downPostgres(ctx); err != nil {
			return err
		}
		l.hold(ctx, 2*time.Second, 6*time.Second)
	}
	return nil
}

func (l *lane) downPostgres(ctx context.Context) error {
	var err error
	switch l.rng.IntN(3) {
	case 0:
		l.fault("kill PostgreSQL")
		l.World.Kills.Add(1)
		err = l.World.Postgres.Kill()
	case 1:
		l.fault("stop PostgreSQL at once")
		err = l.World.Postgres.Quit(context.WithoutCancel(ctx))
	default:
		// The server ends all others and recovers by itself.
		return l.killBackend(ctx)
	}
	if err != nil {
		return err
	}
	l.hold(ctx, 0, 2*time.Second)
	heal, cancel := healing(ctx)
	defer cancel()
	return l.World.Postgres.Start(heal)
}

func (l *lane) killBackend(ctx context.Context) error {
	var pid int
	err := l.World.DB.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name NOT LIKE 'chaos%' LIMIT 1`).Scan(&pid)
	if err != nil {
		l.note("no backend to kill: %v", err)
		return nil
	}
	l.fault("kill a backend of PostgreSQL")
	l.World.Kills.Add(1)
	return syscall.Kill(pid, syscall.SIGKILL)
}

func terminateBackends(ctx context.Context, l *lane) error {
	var heals []func()
	defer func() {
		for _, heal := range heals {
			heal()
		}
	}()
	for _, link := range []string{world.LinkA, world.LinkB} {
		heal := l.World.Links.Inject(link, world.Postgres, -1, world.LostCommit(5+l.rng.IntN(20)))
		heals = append(heals, heal)
	}
	l.fault("terminate backends every 200 ms, lose answers to commits")
	ctx, cancel := context.WithTimeout(ctx, l.between(4*time.Second, 10*time.Second))
	defer cancel()
	for ctx.Err() == nil {
		_, err := l.World.DB.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'chaos' ORDER BY random() LIMIT $1) AS chosen`, 1+l.rng.IntN(3))
		if err != nil && ctx.Err() == nil {
			l.note("terminate: %v", err)
		}
		wait(ctx, 200*time.Millisecond)
	}
	return nil
}

func obstruct(ctx context.Context, l *lane) error {
	ways := []func(context.Context, *lane) error{lockTables, deadlock, timeouts, flood}
	for _, i := range l.rng.Perm(len(ways))[:2] {
		if ctx.Err() != nil {
			return nil
		}
		if err := ways[i](ctx, l); err != nil {
			// The obstacle met one itself, such as a server that another case stopped.
			l.note("%v", err)
		}
		l.hold(ctx, time.Second, 2*time.Second)
	}
	return nil
}

// lockTables keeps everybody out for a while.
func lockTables(ctx context.Context, l *lane) error {
	table := []string{"consumer_offsets", "outbox_events", "executions", "leases"}[l.rng.IntN(4)]
	return pgx.BeginFunc(ctx, l.World.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		l.fault("lock %s", table)
		l.hold(ctx, time.Second, 4*time.Second)
		return nil
	})
}

// deadlock locks rows in an order that collides with that of others, for a while.
func deadlock(ctx context.Context, l *lane) error {
	l.fault("provoke deadlocks")
	ctx, cancel := context.WithTimeout(ctx, l.between(2*time.Second, 5*time.Second))
	defer cancel()
	for ctx.Err() == nil {
		_ = pgx.BeginFunc(ctx, l.World.DB, func(tx pgx.Tx) error {
			for _, sql := range []string{
				`SELECT FROM outbox_events WHERE status = 'PENDING' ORDER BY seq DESC LIMIT 200 FOR UPDATE`,
				`SELECT FROM consumer_offsets ORDER BY random() FOR UPDATE`,
				`SELECT FROM executions WHERE finished_at IS NULL ORDER BY random() LIMIT 50 FOR UPDATE`,
			} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
				wait(ctx, 50*time.Millisecond)
			}
			return nil
		})
	}
	return nil
}

// timeouts has new sessions give up early.
func timeouts(ctx context.Context, l *lane) error {
	heal, cancel := healing(ctx)
	defer cancel()
	set := []string{"statement_timeout = '30ms'", "lock_timeout = '20ms'", "idle_in_transaction_session_timeout = '50ms'"}[l.rng.IntN(3)]
	l.fault("new sessions have %s", set)
	if _, err := l.World.DB.Exec(heal, `ALTER DATABASE millrace SET `+set); err != nil {
		return err
	}
	renew := `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'chaos'`
	_, err := l.World.DB.Exec(heal, renew)
	l.hold(ctx, 2*time.Second, 5*time.Second)
	return errors.Join(err, until(heal, patience, "the timeout is taken back", func() (bool, error) {
		if _, err := l.World.DB.Exec(heal, `ALTER DATABASE millrace RESET ALL`); err != nil {
			return false, err
		}
		_, err := l.World.DB.Exec(heal, renew)
		return err == nil, err
	}))
}

// flood takes all connections that there are, and those of others away.
func flood(ctx context.Context, l *lane) error {
	l.fault("take all connections")
	var conns []*pgx.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close(context.WithoutCancel(ctx))
		}
	}()
	config := l.World.DB.Config().ConnConfig
	ctx, cancel := context.WithTimeout(ctx, l.between(3*time.Second, 6*time.Second))
	defer cancel()
	_, _ = l.World.DB.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'chaos'`)
	for len(conns) < 250 {
		c, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			break // there are no more
		}
		conns = append(conns, c)
	}
	<-ctx.Done()
	return nil
}

// stayOpen holds a snapshot, so that no dead row can be removed.
func stayOpen(ctx context.Context, l *lane) error {
	conn, err := l.World.DB.Acquire(ctx)
	if err != nil {
		l.note("%v", err)
		return nil
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		l.note("%v", err)
		return nil
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var snapshot string
	if err := tx.QueryRow(ctx, `SELECT pg_current_xact_id()::text`).Scan(&snapshot); err != nil {
		l.note("%v", err)
		return nil
	}
	l.fault("hold a snapshot")
	l.hold(ctx, 10*time.Second, 20*time.Second)
	return nil
}

// fillDisk takes the space of PostgreSQL away while it writes, and gives it back.
func fillDisk(ctx context.Context, l *lane) error {
	for range 2 {
		wait(ctx, 10*time.Second)
		before, _ := workload.Count(ctx, l.World.DB, `SELECT count(*) FROM chaos_facts`)
		free, err := world.Fill(l.World.Postgres.DataDir(), 4<<20)
		if err != nil {
			return err
		}
		l.fault("the disk of PostgreSQL is full")
		l.hold(ctx, 10*time.Second, 15*time.Second)
		if err := free(); err != nil {
			return err
		}
		l.note("the disk has room again")
		heal, cancel := healing(ctx)
		err = until(heal, patience, "facts are committed again", func() (bool, error) {
			n, err := workload.Count(heal, l.World.DB, `SELECT count(*) FROM chaos_facts`)
			if err != nil {
				// Without room for its log the server ends; a person starts it again.
				_ = l.World.Postgres.Stop(heal)
				return false, errors.Join(err, l.World.Postgres.Start(heal))
			}
			return n > before, nil
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
