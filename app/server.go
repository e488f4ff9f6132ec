package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/build"
	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/jobs"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/results"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/admin"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/server/rest"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/internal/trigger/report"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// apiModule serves the REST API with its live streams.
var apiModule = fx.Module("api", fx.Provide(newHubs, newStreams, newQueries, newGraphQL, newGuard, newHooks, newAPI, newGRPC))

// addresses are where the servers of this process ended up listening.
type addresses struct{ api, admin, grpc string }

// newHealth says what this process needs to be ready.
func newHealth(c *connections) *health.Health {
	broker := health.Check{Name: "kafka", Note: withoutKafka}
	if c.admin != nil {
		broker = health.Check{Name: "kafka", Run: c.admin.Ping}
	}
	return health.New(
		health.Check{Name: "postgres", Run: c.pool.Ping},
		broker,
		health.Check{Name: "migrations", Run: func(ctx context.Context) error {
			return postgres.CheckCurrent(ctx, c.pool)
		}},
	)
}

// withoutKafka is what a process without Kafka says of itself.
const withoutKafka = "there is none: workflows run, jobs are polled for, and no events are published"

// newHubs makes a hub for each topic whose events are streamed.
func newHubs(cfg configs.Config, c *connections, log *slog.Logger, reg prometheus.Registerer) []*sse.Hub {
	var hubs []*sse.Hub
	for _, topic := range []topics.Topic{topics.ExecutionEvents, topics.FlowLifecycle} {
		physical := cfg.TopicNaming().Physical(topic)
		hubs = append(hubs, sse.NewHub(topic, sse.NewKafkaLog(c.kafka, c.admin, physical), log, reg))
	}
	return hubs
}

func newStreams(hubs []*sse.Hub, cfg configs.Config, pool *pgxpool.Pool) *sse.Streams {
	return sse.NewStreams(eventlog.NewReader(pool), sse.Config{Max: cfg.API.MaxStreams}, hubs[0], hubs[1:]...)
}

func newDeadLetters(
	cfg configs.Config, c *connections, signals *postgres.Signals, reg prometheus.Registerer,
) *deadletter.Store {
	return deadletter.New(deadletter.Config{
		Pool: c.pool, Naming: cfg.TopicNaming(), Registerer: reg, Policies: retryPolicies(cfg),
		Wake: func() {
			signals.Wake(outbox.WakeName)
			signals.Wake(parking.WakeName)
			signals.Wake(deadletter.DirectWakeName)
		},
		WakeKeeper: func() { signals.Wake(deadletter.KeeperWakeName) },
		TopicNames: func(ctx context.Context) ([]string, error) {
			found, err := c.admin.ListTopics(ctx)
			names := make([]string, len(found))
			for i, t := range found {
				names[i] = t.Name
			}
			return names, err
		},
	})
}

func retryPolicies(cfg configs.Config) deadletter.Policies {
	var policies deadletter.Policies
	for _, name := range slices.Sorted(maps.Keys(cfg.DeadLetters.Retry)) {
		r := cfg.DeadLetters.Retry[name]
		policies = append(policies, deadletter.Policy{
			Name: name, Topic: r.Topic, Consumer: r.Consumer, EventType: r.Type, Class: r.Class,
			From: r.From, Max: r.Max, Attempts: r.Attempts, HoldAbove: r.HoldAbove,
		})
	}
	return policies
}

// newQueries is what the APIs read the read models through.
func newQueries(cfg configs.Config, c *connections) *query.Store {
	return query.NewStore(c.pool, query.Limits{Timeout: cfg.API.QueryTimeout})
}

// apiTriggers are the parts of triggers that the API shows and serves.
type apiTriggers struct {
	fx.In

	Store     *triggerstore.Store
	Snapshot  *triggerstore.Snapshot
	Reports   *report.Reader
	Schedules *schedule.Store
	Hooks     *hooks.Hooks
}

func newAPI(
	cfg configs.Config, c *connections, queries *query.Store, asked *graphql.Server, st *store.Store, kept *results.Store,
	signals *postgres.Signals, streams *sse.Streams, letters *deadletter.Store, replays *replay.Store, rebuilds *rebuild.Store, known *limitstore.Store, purges *purge.Store,
	flows *engine.Engine, defined *definitions.Store, queue *jobs.Store, front apiTriggers, h *health.Health, guard auth.Guard, log *slog.Logger,
) (*rest.API, error) {
	bounds, err := newLimits(cfg)
	if err != nil {
		return nil, err
	}
	return rest.New(rest.Deps{
		Executions:  st,
		Results:     kept,
		DataIndex:   projections.NewReader(c.pool),
		Lists:       queries.Executions(),
		Queries:     queries,
		History:     eventlog.NewReader(c.pool),
		Topics:      rest.NewBrokerTopics(c.admin, cfg.TopicNaming(), cfg.TopicSpecs()),
		DeadLetters: letters,
		Outbox:      outbox.NewOperator(c.pool, signals),
		Queue:       st,
		Holds:       holds.New(c.pool, func() { signals.Wake(store.WakeAdmission) }, log),
		Consumers:   consumers.NewOperator(consumers.OperatorConfig{Pool: c.pool, Signals: signals, Broker: consumerBroker{c.admin}}),
		Limits:      known,
		Definitions: defined,
		Triggers:    front.Store, TriggerReports: front.Reports, TriggerSnapshot: front.Snapshot, Schedules: front.Schedules,
		Workflows:  flows,
		Sagas:      flows,
		Jobs:       queue,
		JobRecords: jobs.NewReader(c.pool),
		Dispatch:   queue,
		Hooks:      front.Hooks,
		Purges:     purges,
		Replays:    replays,
		Rebuilds:   rebuilds,
		Streams:    streams,
		GraphQL:    asked,
		Health:     h,
		Guard:      guard,
		Logger:     log,
		Faults:     middleware.Classifier{Infrastructure: []func(error) bool{isInfrastructure}},
	}, rest.Config{
		Version: build.Version(), MaxBodyBytes: int64(cfg.API.MaxBodyBytes), Terms: bounds.Terms(),
		PlaceholderAfter: cfg.DataIndex.PlaceholderAfter, WithoutKafka: cfg.Brokerless(), WithoutAudit: !cfg.Workflows.AuditLog,
	})
}

func newGraphQL(cfg configs.Config, c *connections, log *slog.Logger, reg prometheus.Registerer) *graphql.Server {
	g := cfg.GraphQL
	return graphql.New(graphql.Deps{
		DB: c.pool, Logger: log, Registerer: reg, Infrastructure: isInfrastructure,
	}, graphql.Config{
		NoIntrospection: !g.Introspection,
		Limits: graphql.Limits{
			BodyBytes: int64(g.MaxBodyBytes), Tokens: g.MaxTokens, Depth: g.MaxDepth, Cost: g.MaxCost, RootFields: g.MaxRootFields,
			Aliases: g.MaxAliases, Directives: g.MaxDirectives, ListLength: g.MaxListLength, PageSize: g.MaxPageSize,
			Concurrency: g.MaxConcurrent, Timeout: g.Timeout,
		},
	})
}

// newGuard reads the token of the API, and makes one where there is none yet.
func newGuard(cfg configs.Config) (auth.Guard, error) {
	if cfg.API.Auth.Mode == configs.AuthOff {
		return auth.Guard{}, nil
	}
	token, err := apiToken(cfg)
	if err != nil {
		return auth.Guard{}, fmt.Errorf("api token: %w", err)
	}
	return auth.Guard{Tokens: auth.Static{{
		Hash:      auth.HashToken(token.Reveal()),
		Principal: auth.Principal{Name: "admin", Scopes: []auth.Scope{auth.Admin}},
	}}}, nil
}

func apiToken(cfg configs.Config) (secret.Secret, error) {
	if token := cfg.API.Auth.Token; token.Reveal() != "" {
		return token, nil
	}
	path := cmp.Or(cfg.API.Auth.TokenFile, configs.TokenFile(cfg.DataDir))
	if err := makeToken(path); err != nil {
		return secret.Secret{}, err
	}
	token, err := configs.ReadToken(path)
	if err == nil && token.Reveal() == "" {
		err = fmt.Errorf("the file %s is empty: delete it to have a new token made", path)
	}
	return token, err
}

// makeToken writes a random token to a file that only its owner can read, unless
// the file exists. Of several processes that start at once one makes the file.
func makeToken(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	// Written aside and linked into place, so that nobody reads half a token and
	// nobody's token is overwritten.
	temporary, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.WriteString(hex.EncodeToString(random) + "\n")
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Link(temporary.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func runAPI(
	lc fx.Lifecycle, l *loops, cfg configs.Config, api *rest.API, hubs []*sse.Hub, streams *sse.Streams,
	h *health.Health, address *addresses, log *slog.Logger, reg prometheus.Registerer,
) error {
	for _, hub := range hubs {
		if !cfg.Brokerless() {
			l.run("live events", hub.Run)
		}
	}
	config := server.Config{
		Name: "api", Address: cfg.API.Listen, Setting: "api.listen (--api-listen)", Health: h,
		OnShutdown: func() { streams.Close(); api.Close() },
	}
	config.CertFile, config.KeyFile = cfg.API.TLS.CertFile, cfg.API.TLS.KeyFile
	s := server.New(config, server.Wrap(api, config, log, server.NewMetrics(reg)), log)
	serve(lc, l, s, cfg, &address.api)
	return nil
}

func runAdmin(
	lc fx.Lifecycle, l *loops, cfg configs.Config, gatherer prometheus.Gatherer, h *health.Health,
	agent *consumers.Agent, address *addresses, log *slog.Logger,
) {
	if cfg.Admin.Listen == "" {
		return
	}
	config := server.Config{Name: "admin", Address: cfg.Admin.Listen, Setting: "admin.listen (--admin-listen)"}
	serve(lc, l, server.New(config, admin.NewHandler(config, gatherer, h, func() any { return agent.Local() }, log), log), cfg, &address.admin)
}

// serve opens the listener at the start, so that a port that is taken fails it,
// serves, and ends requests in order at the stop.
func serve(lc fx.Lifecycle, l *loops, s *server.Server, cfg configs.Config, url *string) {
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		if err := s.Listen(ctx); err != nil {
			return err
		}
		*url = s.URL()
		return nil
	}))
	l.run("server", func(ctx context.Context) error {
		stopped := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.API.ShutdownTimeout)
			defer cancel()
			stopped <- s.Shutdown(timeout)
		})
		err := s.Serve()
		if !stop() {
			err = errors.Join(err, <-stopped)
		}
		return err
	})
}
