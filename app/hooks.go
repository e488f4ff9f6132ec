package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/ingest"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/trigger/report"
	"github.com/millrace/millrace/internal/trigger/secrets"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
)

// newHooks receives webhooks in processes that serve the API. It stops after the server, which
// waits for the requests that it has taken.
func newHooks(
	lc fx.Lifecycle, cfg configs.Config, triggers *triggerstore.Snapshot, resolver *secrets.Resolver, creator *ingest.Ingest,
	buckets *limitstore.Store, reports *report.Reader, log *slog.Logger, reg prometheus.Registerer,
) *hooks.Hooks {
	h := hooks.New(hooks.Deps{
		Triggers: triggers, Secrets: resolver, Creator: creator, Buckets: buckets, Logger: log, Registerer: reg,
	}, hooks.Config{WithoutKafka: cfg.Brokerless()})
	reports.AskHooks(h)
	lc.Append(fx.Hook{
		// So that the first request finds its trigger. If it fails, the snapshot reads them as
		// soon as it can, and until then senders are told to come again.
		OnStart: func(ctx context.Context) error {
			if err := triggers.Refresh(ctx); err != nil {
				log.WarnContext(ctx, "webhooks wait for the triggers to be read", "error", err)
			}
			return nil
		},
		OnStop: h.Close,
	})
	return h
}
