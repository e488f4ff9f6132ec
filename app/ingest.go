package app

import (
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	triggerhandler "github.com/millrace/millrace/handlers/trigger"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
)

// ingestModule is what makes the targets of messages, for every source of them.
var ingestModule = fx.Module("ingest",
	fx.Provide(newIngest, newFairCreator),
	asTriggerFollower(func(g *ingest.Ingest) *ingest.Ingest { return g }),
)

func newIngest(st *store.Store, flows *engine.Engine, log *slog.Logger, reg prometheus.Registerer) *ingest.Ingest {
	return ingest.New(ingest.Config{Executions: st, Workflows: flows, Log: log, Registerer: reg})
}

// createShare is the part of the connections that one trigger may use at a time.
const createShare = 4

// fairCreator is what the sources of triggers hand messages to.
type fairCreator struct{ ingest.Creator }

func newFairCreator(g *ingest.Ingest, pool *pgxpool.Pool) fairCreator {
	return fairCreator{triggerhandler.Fair(g, int(pool.Config().MaxConns)/createShare)}
}
