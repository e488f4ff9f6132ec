package app

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	triggerhandler "github.com/millrace/millrace/handlers/trigger"
	"github.com/millrace/millrace/handlers/trigger/kafkasource"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
	"github.com/millrace/millrace/internal/trigger/secrets"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
)

// triggersModule runs the members of triggers.
var triggersModule = fx.Module("triggers", fx.Provide(newSupervisor, newRedeliverer), asTriggerSource(newKafkaSource))

// memberLease is how long a member of a trigger stays with a process that no longer renews
// it, and so how long it stands when its process dies.
const memberLease = 6 * time.Second

// triggerSource is what runs the members of triggers of a type. Constructors provide it
// with asTriggerSource.
type triggerSource struct {
	of     trigger.Type
	source triggerhandler.Source
}

// asTriggerSource provides the result of a constructor, a triggerSource, to the supervisor.
func asTriggerSource(constructor any) fx.Option {
	return fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"trigger_sources"`)))
}

func newKafkaSource(
	c *connections, creator fairCreator, keys *secrets.Resolver, reports *report.Reader, log *slog.Logger,
) triggerSource {
	return triggerSource{trigger.TypeKafka, kafkasource.New(kafkasource.Config{
		Installation: c.kafka, Creator: creator, Secrets: keys, Positions: reports.Positions, Log: log,
	})}
}

// newRedeliverer makes what gives redriven dead letters of triggers to Create again.
func newRedeliverer(pool *pgxpool.Pool, signals *postgres.Signals, creator fairCreator, st *triggerstore.Store, log *slog.Logger) *ingest.Redeliverer {
	return ingest.NewRedeliverer(ingest.RedelivererConfig{
		Pool: pool, Signals: signals, Creator: creator, Find: st.Find, Decode: kafkasource.Decode, Log: log,
	})
}

type supervisorParts struct {
	fx.In
	Config     configs.Config
	Pool       *pgxpool.Pool
	Store      *triggerstore.Store
	Reader     *report.Reader
	Sources    []triggerSource `group:"trigger_sources"`
	Signals    *postgres.Signals
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

func newSupervisor(p supervisorParts) (*triggerhandler.Supervisor, error) {
	sources := make(map[trigger.Type]triggerhandler.Source, len(p.Sources))
	for _, s := range p.Sources {
		sources[s.of] = s.source
	}
	return triggerhandler.NewSupervisor(triggerhandler.Config{
		Definitions: p.Store, Compile: p.Store.Compile, Sources: sources,
		Leases:  lease.NewManager(p.Pool, p.Config.Worker.ID, memberLease, p.Log, lease.WithSignals(p.Signals)),
		Reports: report.NewWriter(p.Pool, p.Log), Reader: p.Reader, Signals: p.Signals, WakeName: triggerstore.WakeName,
		Registerer: p.Registerer, Log: p.Log,
	})
}

func runTriggers(l *loops, s *triggerhandler.Supervisor, r *ingest.Redeliverer) {
	l.run("triggers", s.Run)
	l.run("redelivery to triggers", r.Run)
}
