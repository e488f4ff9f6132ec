package app

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// workflowsModule is the workflow engine, for the roles that ask for it: the API, which
// its callers reach, and what fires its timers.
var workflowsModule = fx.Module("workflows", fx.Provide(newDefinitions, newJobs, newEngine, newSagaTopics, newStarter))

func newDefinitions(l *loops, pool *pgxpool.Pool, signals *postgres.Signals) *definitions.Store {
	st := definitions.New(definitions.Config{Pool: pool, Signals: signals})
	l.run("definitions", st.Run)
	return st
}

func newJobs(
	l *loops, cfg configs.Config, c *connections, signals *postgres.Signals, h *health.Health, log *slog.Logger, reg prometheus.Registerer,
) (*jobs.Store, error) {
	config := jobs.Config{Pool: c.pool, Mode: jobs.Mode(cfg.Jobs.DispatchMode), Lease: cfg.Jobs.Lease, Signals: signals, Metrics: reg, Log: log}
	if c.admin != nil {
		config.Topics = jobTopics{c.admin, cfg}
	}
	st, err := jobs.NewStore(config)
	if err != nil {
		return nil, err
	}
	if st.Mode() == jobs.KafkaOutbox {
		h.Add(health.Check{Name: "topics of jobs", Run: st.Ready})
	}
	l.run("jobs", st.Run)
	return st, nil
}

// engineParams are what the engine is made of.
type engineParams struct {
	fx.In

	Config      configs.Config
	Pool        *pgxpool.Pool
	Definitions *definitions.Store
	Jobs        *jobs.Store
	Signals     *postgres.Signals
	Handover    *outbox.Handover
	Sagas       engine.Sagas
	Log         *slog.Logger
	Metrics     prometheus.Registerer
}

// newEngine makes the engine. Every process that has one prepares the topics of jobs, since
// each goes by what it knows of them.
func newEngine(l *loops, p engineParams) *engine.Engine {
	w := p.Config.Workflows
	e := engine.New(engine.Config{
		Pool: p.Pool, Plans: p.Definitions, Jobs: p.Jobs, Signals: p.Signals, Handover: p.Handover, Sagas: p.Sagas,
		Limits:       workflow.Limits{Variables: int(w.MaxVariablesBytes), Steps: w.MaxSteps},
		Transactions: w.Transactions, TransactionSize: w.TransactionSize, Queue: w.Queue,
		Retention:   p.Config.Retention.Workflows,
		NoLifecycle: !w.Lifecycle || p.Config.Brokerless(),
		NoAudit:     !w.AuditLog,
		Metrics:     p.Metrics, Log: p.Log,
	})
	l.run("workflow engine", e.Run)
	if p.Jobs.Mode() == jobs.KafkaOutbox {
		l.run("topics of job types", func(ctx context.Context) error { return e.RunPreparation(ctx, p.Definitions) })
	}
	return e
}

// runWorkflows does what no caller asks for.
func runWorkflows(l *loops, e *engine.Engine, st *jobs.Store, leases *lease.Manager) {
	l.run("workflow timers", func(ctx context.Context) error { return e.RunTimers(ctx, leases) })
	l.run("workflow housekeeping", func(ctx context.Context) error { return e.RunHousekeeping(ctx, leases) })
	l.run("job leases", jobs.NewSweeper(st, e).Run)
	l.run("job dispatches", jobs.NewDispatches(st).Run)
}

// jobTopics creates the topics of jobs.
type jobTopics struct {
	admin  *kafka.Admin
	config configs.Config
}

// EnsureJobTopics implements jobs.Topics.
func (t jobTopics) EnsureJobTopics(ctx context.Context, names []string) error {
	list := make([]kafka.TopicConfig, len(names))
	for i, name := range names {
		list[i] = kafka.TopicConfig{
			Name: t.config.TopicNaming().Physical(topics.Topic(name)), Partitions: jobPartitions,
			ReplicationFactor: t.config.Kafka.ReplicationFactor,
			Configs:           map[string]string{"retention.ms": strconv.FormatInt(jobRetention.Milliseconds(), 10)},
		}
	}
	_, err := t.admin.EnsureTopics(ctx, list)
	return err
}

// What topics of jobs are created with.
const (
	jobPartitions = 6
	jobRetention  = 3 * topics.Day
)
