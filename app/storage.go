package app

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

// leaseTTL is how long a relay's shard or an admitter's class stays with a
// process that has stopped answering.
const leaseTTL = 10 * time.Second

// storageModule is the database as every role sees it.
var storageModule = fx.Module("storage",
	fx.Provide(newSignals, newLeases, outbox.NewHandover, newStore, newExecutions, newResults),
)

func newSignals(l *loops, pool *pgxpool.Pool, log *slog.Logger) *postgres.Signals {
	signals := postgres.NewSignals(pool, log)
	l.run("wake-ups", signals.Run)
	return signals
}

func newLeases(cfg configs.Config, pool *pgxpool.Pool, s *postgres.Signals, log *slog.Logger) *lease.Manager {
	return lease.NewManager(pool, cfg.Worker.ID, leaseTTL, log, lease.WithSignals(s))
}

func newStore(cfg configs.Config, pool *pgxpool.Pool, signals *postgres.Signals, relay *outbox.Handover) *store.Store {
	policy := execution.DefaultPolicy()
	policy.AgeingStep = cfg.Coordinator.AgeingStep
	policy.StartLimit = cfg.Coordinator.StartLimit
	policy.MaxDeliveries = cfg.Coordinator.MaxDeliveries
	st := store.New(pool, signals, policy)
	st.HandOver(relay)
	return st
}
