package app

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/topics"
)

func newPurges(
	cfg configs.Config, pool *pgxpool.Pool, letters *deadletter.Store, executions Executions, signals *postgres.Signals,
	reg prometheus.Registerer,
) *purge.Store {
	return purge.New(purge.Config{
		Pool: pool, Letters: letters, Cancel: executions.Cancel, Registerer: reg,
		Workflows: purge.Engine{Erase: engine.Erase, Cancel: engine.AskCancel},
		Wake:      func() { signals.Wake(purge.WakeName) },
		Retention: purge.Retention{Executions: cfg.Retention.Executions, Instances: cfg.Retention.Instances, Remember: remember(cfg)},
	})
}

// remember is for how long something can come in about executions that are purged:
// from topics that are read again, the event log, and the outbox; 0: for ever.
func remember(cfg configs.Config) time.Duration {
	longest := cfg.Retention.Outbox
	for _, table := range cfg.Topics {
		if table.Retention < 0 {
			return 0
		}
		longest = max(longest, table.Retention)
	}
	if cfg.Retention.Events == 0 {
		return 0
	}
	// Weeks are dropped as a whole, and brokers take their time.
	return max(longest, cfg.Retention.Events) + 14*topics.Day
}

func newPurgeKeeper(
	lc fx.Lifecycle, purges *purge.Store, leases *lease.Manager, signals *postgres.Signals, log *slog.Logger,
) *purge.Keeper {
	wakes, stop := signals.Subscribe(purge.WakeName)
	lc.Append(fx.StopHook(stop))
	return purge.NewKeeper(purges, leases, wakes, log)
}
