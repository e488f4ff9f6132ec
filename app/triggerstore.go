package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/trigger/report"
	"github.com/millrace/millrace/internal/trigger/secrets"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
)

// triggerStoreModule is what triggers there are, for those who change, run and serve them.
var triggerStoreModule = fx.Module("trigger store", fx.Provide(newTriggerStore, newTriggerSnapshot, newTriggerSecrets, newTriggerReports))

// asTriggerFollower provides the result of a constructor, which has effects in the
// transaction of each change of a trigger.
func asTriggerFollower(constructor any) fx.Option {
	return fx.Provide(fx.Annotate(constructor, fx.As(new(triggerstore.Follower)), fx.ResultTags(`group:"trigger_followers"`)))
}

// triggerStoreParts are what triggers are kept with.
type triggerStoreParts struct {
	fx.In

	Config    configs.Config
	Pool      *pgxpool.Pool
	Signals   *postgres.Signals
	Workflows *definitions.Store
	Followers []triggerstore.Follower `group:"trigger_followers"`
}

func newTriggerStore(p triggerStoreParts) *triggerstore.Store {
	return triggerstore.New(triggerstore.Config{
		Pool: p.Pool, Signals: p.Signals, Defaults: p.Config.TriggerDefaults(), Followers: p.Followers,
		Workflows: func(ctx context.Context, id string, version int) (bool, error) {
			_, _, err := p.Workflows.Plan(ctx, id, version)
			if errors.Is(err, definitions.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		},
	})
}

func newTriggerSnapshot(l *loops, st *triggerstore.Store, log *slog.Logger) *triggerstore.Snapshot {
	snapshot := triggerstore.NewSnapshot(st, log)
	l.run("triggers known", snapshot.Run)
	return snapshot
}

func newTriggerSecrets(cfg configs.Config) *secrets.Resolver {
	return secrets.New(cfg.TriggerDefaults().Secrets)
}

func newTriggerReports(pool *pgxpool.Pool, schedules *schedule.Store) *report.Reader {
	r := report.NewReader(pool)
	r.AskSchedules(schedules)
	return r
}
