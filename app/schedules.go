package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	schedulehandler "github.com/millrace/millrace/handlers/schedule"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/trigger"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
	"github.com/millrace/millrace/pipeline"
)

// scheduleStoreModule is when triggers by time fire, for those who change and ask for them.
var scheduleStoreModule = fx.Module("schedule store",
	fx.Provide(newSchedules),
	asTriggerFollower(func(s *schedule.Store) *schedule.Store { return s }),
)

// schedulesModule fires triggers by time.
var schedulesModule = fx.Module("schedules",
	fx.Provide(newScheduleRunner, newScheduleKeeper),
	asConsumer(func(r *schedule.Runner) pipeline.Consumer { return schedulehandler.NewConsumer(r) }),
)

func newSchedules(
	cfg configs.Config, pool *pgxpool.Pool, signals *postgres.Signals, handover *outbox.Handover, log *slog.Logger, reg prometheus.Registerer,
) *schedule.Store {
	return schedule.NewStore(schedule.Config{
		Pool: pool, Waker: signals, Handover: handover, Silent: cfg.Brokerless(), Retention: cfg.Retention.Firings,
		AlertAfter: cfg.TriggerDefaults().AlertAfter, Registerer: reg, Log: log,
	})
}

func newScheduleRunner(
	st *schedule.Store, creator fairCreator, triggers *triggerstore.Store, pool *pgxpool.Pool, log *slog.Logger,
) *schedule.Runner {
	return schedule.NewRunner(schedule.RunnerConfig{
		Store: st, Creator: creator, Triggers: triggers, Compile: triggers.Compile, Targets: scheduleTargets{pool}, Log: log,
	})
}

func newScheduleKeeper(st *schedule.Store, r *schedule.Runner, signals *postgres.Signals) *schedule.Keeper {
	return schedule.NewKeeper(st, r, signals, triggerstore.WakeName)
}

func runSchedules(l *loops, k *schedule.Keeper) { l.run("schedules", k.Run) }

// scheduleTargets tells which of the executions and instances that triggers made have ended.
type scheduleTargets struct{ pool *pgxpool.Pool }

// Ended implements schedule.Targets.
func (t scheduleTargets) Ended(ctx context.Context, list []schedule.Target) (map[schedule.Target]bool, error) {
	byKind := map[string][]uuid.UUID{}
	ended := make(map[schedule.Target]bool, len(list))
	for _, target := range list {
		ended[target] = true // what there is not any more has
		if id, err := uuid.Parse(target.ID); err == nil {
			byKind[target.Kind] = append(byKind[target.Kind], id)
		}
	}
	note := func(kind string) func(uuid.UUID, bool) {
		return func(id uuid.UUID, over bool) { ended[schedule.Target{Kind: kind, ID: id.String()}] = over }
	}
	var b pgx.Batch
	store.QueueExisting(&b, byKind[trigger.KindExecution], note(trigger.KindExecution))
	engine.QueueExisting(&b, byKind[trigger.KindInstance], note(trigger.KindInstance))
	if err := t.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("ask which targets have ended: %w", err)
	}
	return ended, nil
}
