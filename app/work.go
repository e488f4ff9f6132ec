package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/handlers/coordinator"
	letterfiler "github.com/millrace/millrace/handlers/deadletter"
	"github.com/millrace/millrace/handlers/recorder"
	"github.com/millrace/millrace/handlers/worker"
	"github.com/millrace/millrace/internal/alerts"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/function"
	"github.com/millrace/millrace/internal/executor/kubernetes"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/executor/workflow"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/internal/results"
	"github.com/millrace/millrace/internal/retention"
	"github.com/millrace/millrace/internal/routing"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
)

var (
	relayModule       = fx.Module("relay", fx.Provide(newRelay))
	maintenanceModule = fx.Module("maintenance",
		fx.Provide(newSweeper, newCensus, deadletter.NewGauge, parking.NewGauge, newPlaceholderGauge, newKeeper, newLetterKeeper, newResultsKeeper, newAlerts, newPurgeKeeper),
		asConsumers(newRecorders), asConsumer(letterfiler.New))
	coordinatorModule = fx.Module("coordinator", fx.Provide(newLimits, newDeclarer, newAdmitter, routing.NewWatcher), asConsumer(newCoordinatorConsumer))
	workerModule      = fx.Module("worker", fx.Provide(newKubernetes, newWorkloads, newExecutors, newWorker), asConsumers((*worker.Worker).Consumers))
	projectionsModule = fx.Module("projections", asConsumers(newProjections))
)

func newRelay(
	cfg configs.Config, pool *pgxpool.Pool, leases *lease.Manager, records *deadletter.Publisher,
	signals *postgres.Signals, handover *outbox.Handover, log *slog.Logger, reg prometheus.Registerer,
) (*outbox.Relay, error) {
	return outbox.NewRelay(outbox.Deps{
		Pool: pool, Leases: leases, Publisher: records, IsRejected: kafka.IsRejected, Naming: cfg.TopicNaming(),
		Signals: signals, Handover: handover, Metrics: reg, Log: log,
	}, outbox.Config{BatchSize: cfg.Relay.BatchSize, PollCeiling: cfg.Relay.PollCeiling})
}

func runRelay(l *loops, relay *outbox.Relay) { l.run("relay", relay.Run) }

func newSweeper(st *store.Store, log *slog.Logger, reg prometheus.Registerer) *coordinator.Sweeper {
	return coordinator.NewSweeper(st, 0, log, reg)
}

func newCensus(st *store.Store, log *slog.Logger, reg prometheus.Registerer) *coordinator.Census {
	return coordinator.NewCensus(st, log, reg)
}

func runMaintenance(
	l *loops, s *coordinator.Sweeper, census *coordinator.Census, g *deadletter.Gauge, w *alerts.Watcher, k *retention.Keeper,
	letters *deadletter.Keeper, leases *lease.Manager, parked *parking.Gauge, kept *results.Keeper, purges *purge.Keeper,
	placeholders *projections.PlaceholderGauge,
) {
	l.run("sweeper", s.Run)
	l.run("census", census.Run)
	l.run("dead letter gauge", g.Run)
	l.run("parking gauge", parked.Run)
	l.run("placeholder gauge", placeholders.Run)
	l.run("dead letter keeper", letters.Run)
	if w != nil {
		l.run("alerts", w.Run)
	}
	l.run("results keeper", func(ctx context.Context) error { return kept.Run(ctx, leases) })
	l.run("purge", purges.Run)
	l.run("retention", func(ctx context.Context) error { return k.Run(ctx, leases) })
}

// newLetterKeeper makes what works off the redrives of many letters, redrives by
// policy, and archives.
func newLetterKeeper(
	lc fx.Lifecycle, cfg configs.Config, letters *deadletter.Store, leases *lease.Manager, signals *postgres.Signals, log *slog.Logger,
) *deadletter.Keeper {
	wakes, stop := signals.Subscribe(deadletter.KeeperWakeName)
	lc.Append(fx.StopHook(stop))
	return deadletter.NewKeeper(letters, leases, deadletter.KeeperConfig{
		Wakes: wakes, Retention: deadletter.Retention{Settled: cfg.Retention.DeadLetters, Archived: cfg.Retention.DeadLetterArchive},
	}, log)
}

// databaseRoom is how much the database may still grow. Where it has no limit of its
// own, the disk is only known when PostgreSQL runs under this process.
func databaseRoom(cfg configs.Config) (room retention.Room) {
	switch {
	case cfg.Postgres.StorageLimit > 0:
		room = retention.Limit(int64(cfg.Postgres.StorageLimit))
	case cfg.Embedded.Postgres.Enabled:
		room = retention.Disk(cfg.DataDir)
	}
	return room
}

// newKeeper makes what drops partitions.
func newKeeper(cfg configs.Config, pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *retention.Keeper {
	return retention.New(pool, retention.Config{
		Outbox: cfg.Retention.Outbox, Inbox: cfg.Retention.Inbox, Events: cfg.Retention.Events, Room: databaseRoom(cfg),
	}, log, reg)
}

func newPlaceholderGauge(cfg configs.Config, pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *projections.PlaceholderGauge {
	return projections.NewPlaceholderGauge(pool, cfg.DataIndex.PlaceholderAfter, log, reg)
}

func newRecorders(cfg configs.Config, reg prometheus.Registerer) []pipeline.Consumer {
	return recorder.Consumers(reg, cfg.EventLog.Topics)
}

func newProjections(cfg configs.Config, reg prometheus.Registerer) []pipeline.Consumer {
	var consumers []pipeline.Consumer
	for _, p := range projections.All() {
		if p.Name == projections.DataIndexName {
			if !cfg.DataIndex.Enabled {
				continue
			}
			p = projections.DataIndex(projections.NewDataIndexMetrics(reg))
		}
		consumers = append(consumers, p.Consumer())
	}
	return consumers
}

func newCoordinatorConsumer(bounds coordinator.Limits, st *store.Store) pipeline.Consumer {
	return coordinator.NewConsumer(st, bounds)
}

func newAdmitter(
	cfg configs.Config, bounds coordinator.Limits, pool *pgxpool.Pool, st *store.Store, leases *lease.Manager, signals *postgres.Signals,
	log *slog.Logger, reg prometheus.Registerer,
) *coordinator.Admitter {
	a := coordinator.NewAdmitter(coordinator.AdmitterConfig{
		ID: cfg.Worker.ID, Limits: bounds, PollInterval: cfg.Coordinator.PollInterval,
	}, st, leases, signals, log, reg)
	a.RouteBy(routing.New(pool, cfg.TaskTopic, cfg.TopicNaming()))
	return a
}

func runCoordinator(l *loops, a *coordinator.Admitter, d *coordinator.Declarer, routes *routing.Watcher) {
	l.run("limits", d.Run)
	l.run("admitter", a.Run)
	l.run("routes of tasks", routes.Run)
}

// ProcessSandbox translates the settings for the executor process. What the data
// directory holds, the API's token among it, is no business of programs.
func ProcessSandbox(cfg configs.Config) process.Sandbox {
	s := cfg.Worker.Sandbox
	return process.Sandbox{
		Mode: process.SandboxMode(s.Mode), NoNetwork: !s.Network, Writable: s.Writable, Hidden: []string{cfg.DataDir},
	}
}

// newExecutors makes the executors that this worker offers. Functions that the
// program added win over the built-in ones.
func newExecutors(
	lc fx.Lifecycle, cfg configs.Config, functions map[string]function.Func, instances *engine.Engine,
	pods *kubernetes.Executor, log *slog.Logger,
) ([]executor.Executor, error) {
	var list []executor.Executor
	if slices.Contains(cfg.Worker.Executors, spec.ExecutorProcess) {
		root := cmp.Or(cfg.Worker.WorkRoot, filepath.Join(cfg.DataDir, "work"))
		p, err := process.New(process.Config{WorkRoot: root, Sandbox: ProcessSandbox(cfg), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("executor process: %w", err)
		}
		lc.Append(fx.StopHook(p.Close))
		list = append(list, p)
	}
	if slices.Contains(cfg.Worker.Executors, spec.ExecutorFunction) {
		all := function.Builtins()
		maps.Copy(all, functions)
		list = append(list, function.New(function.Config{Functions: all}))
	}
	if slices.Contains(cfg.Worker.Executors, spec.ExecutorWorkflow) {
		list = append(list, workflow.New(instances))
	}
	if pods != nil {
		list = append(list, pods)
	}
	return list, nil
}

func newWorker(
	lc fx.Lifecycle, cfg configs.Config, st *store.Store, kept *results.Store, executors []executor.Executor, signals *postgres.Signals,
	log *slog.Logger, reg prometheus.Registerer,
) (*worker.Worker, error) {
	cancels, stop := signals.Subscribe(store.WakeCancel)
	offers, stopOffers := signals.Subscribe(store.WakeOffered)
	lc.Append(fx.StopHook(func() { stop(); stopOffers() }))
	w := cfg.Worker
	made, err := worker.New(worker.Config{
		ID: w.ID, Slots: w.Slots, CPUMillis: int64(w.CPU), MemoryBytes: int64(w.Memory), GPUs: w.GPUs,
		Classes: w.ResourceClasses, Topics: cfg.WorkerTopics(), Naming: cfg.TopicNaming(),
		Lease: w.Lease, Heartbeat: w.Heartbeat,
		MaxOutputBytes: int64(w.MaxOutputBytes), ShutdownGrace: w.ShutdownGrace,
		MaxResultInline: int64(w.MaxResultInline), MaxResult: int64(w.MaxResult),
	}, st, executors, cancels, log, reg)
	if err != nil {
		return nil, err
	}
	made.KeepResults(kept)
	made.WatchOffers(offers)
	return made, nil
}

func runWorker(l *loops, w *worker.Worker) { l.run("worker", w.Run) }
