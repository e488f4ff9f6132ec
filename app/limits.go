package app

import (
	"fmt"
	"log/slog"
	"maps"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/postgres"
)

// newLimits translates the settings for the coordinator.
func newLimits(cfg configs.Config) (coordinator.Limits, error) {
	set, err := limits.Compile(cfg.LimitDefinitions())
	if err != nil {
		return coordinator.Limits{}, fmt.Errorf("coordinator.limits: %w", err)
	}
	c := cfg.Coordinator
	bounds := coordinator.Limits{
		Set:        set,
		Classes:    make(map[string]coordinator.Class, len(c.Classes)),
		Weights:    maps.Clone(c.Weights),
		Overtake:   c.AgeingStep,
		QueueDepth: coordinator.QueueDepth{User: c.QueueDepth.User, Total: c.QueueDepth.Total},
	}
	for name, class := range c.Classes {
		bounds.Classes[name] = coordinator.Class{
			Slots: class.Slots, CPUMillis: int64(class.CPU), MemoryBytes: int64(class.Memory), GPUs: class.GPUs,
		}
	}
	return bounds, nil
}

func newLimitStore(pool *pgxpool.Pool, signals *postgres.Signals) *limitstore.Store {
	return limitstore.New(pool, func() { signals.Wake(store.WakeAdmission) })
}

func newDeclarer(
	cfg configs.Config, bounds coordinator.Limits, known *limitstore.Store, st *store.Store, log *slog.Logger, reg prometheus.Registerer,
) *coordinator.Declarer {
	return coordinator.NewDeclarer(coordinator.DeclarerConfig{ID: cfg.Worker.ID, Limits: bounds}, known, st, log, reg)
}
