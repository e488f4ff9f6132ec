package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// Executions is the write model; *store.Store implements it.
type Executions interface {
	Submit(ctx context.Context, reqs []topics.Request) ([]store.Submitted, error)
	Rerun(ctx context.Context, r store.Rerun) ([]store.Submitted, error)
	Situation(ctx context.Context, id string, terms store.Terms) (execution.Situation, error)
	Get(ctx context.Context, id string) (*execution.Execution, error)
	Progress(ctx context.Context, id string) (*store.Progress, error)
	Cancel(ctx context.Context, id, by, reason string) (*execution.Execution, error)
	Reprioritize(ctx context.Context, id string, priority int, by, reason string) (*execution.Execution, error)
	Output(ctx context.Context, id string, attempt int, stream executor.Stream) (store.Output, error)
}

// Lists is the read model of executions; query.Collection implements it.
type Lists interface {
	List(ctx context.Context, scope query.Scope, req query.Request) (query.List[query.Execution], error)
}

// DataIndex is what is asked of the data index beside its rows.
type DataIndex interface {
	PlaceholderList(ctx context.Context, olderThan time.Duration, p projections.Page) (projections.PlaceholderPage, error)
}

// History is the event log.
type History interface {
	Events(ctx context.Context, id string, after eventlog.Cursor, limit int) ([]eventlog.Entry, eventlog.Cursor, error)
	Search(ctx context.Context, f eventlog.Filter, before eventlog.Moment, limit int) ([]eventlog.Entry, eventlog.Moment, error)
}

// Topics tells which topics there are.
type Topics interface {
	List(ctx context.Context) ([]Topic, error)
}

// Deps is what the API calls.
type Deps struct {
	Executions  Executions
	Results     Results
	Lists       Lists
	DataIndex   DataIndex
	Queries     *query.Store
	History     History
	Topics      Topics
	DeadLetters DeadLetters
	Outbox      Outbox
	Consumers   Consumers
	Replays     Replays
	Rebuilds    Rebuilds
	Holds       Holds
	Limits      Limits
	Purges      Purges
	Queue       Queue
	Definitions Definitions
	Triggers    Triggers
	// TriggerReports and TriggerSnapshot go with Triggers; the latter may be nil.
	TriggerReports  TriggerReports
	TriggerSnapshot TriggerSnapshot
	Schedules       Schedules
	Workflows       Workflows
	Sagas           SagaActions
	Jobs            JobQueue
	JobRecords      JobRecords
	Dispatch        JobDispatch
	Hooks           Hooks
	Streams         *sse.Streams
	GraphQL         *graphql.Server
	Health          *health.Health
	// Guard checks tokens.
	Guard  auth.Guard
	Logger *slog.Logger
	// Faults tells faults of the infrastructure, which are answered with 503, from
	// bugs. PostgreSQL and the network are known without it.
	Faults middleware.Classifier
}

// Config holds the settings of the API.
type Config struct {
	// Version is that of the binary, for the OpenAPI document.
	Version string
	// MaxBodyBytes bounds the body of a request. Defaults to 1 MiB. A batch may be
	// batchFactor times as long.
	MaxBodyBytes int64
	// Terms are those under which the coordinators admit; for explanations.
	Terms store.Terms
	// RequestTimeout bounds the work for one request, streams excepted. Defaults to
	// 30 s.
	RequestTimeout time.Duration
	// PlaceholderAfter is for how long a placeholder of the data index has been there
	// when it is listed and nothing else is asked for. Defaults to 1 h.
	PlaceholderAfter time.Duration
	// WithoutAudit hides the audit log of instances.
	WithoutAudit bool
	// WithoutKafka has the routes refused that need it.
	WithoutKafka bool
}

const (
	maxBodyDefault = 1 << 20
	batchFactor    = 16
	maxBatch       = 1000
	timeoutDefault = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if c.MaxBodyBytes <= 0 {
		c.MaxBodyBytes = maxBodyDefault
	}
	if c.PlaceholderAfter <= 0 {
		c.PlaceholderAfter = time.Hour
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = timeoutDefault
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	return c
}

// API is the HTTP API.
type API struct {
	deps   Deps
	config Config
	json   strictjson.Decoder
	// contract decodes the bodies of the contract of workflows.
	contract tolerant
	// open ends when requests that wait are to be answered: see Close.
	open  context.Context
	close context.CancelFunc
	mux   *http.ServeMux
	huma  huma.API
	// schemas are those of the document.
	schemas huma.Registry
	// document is /openapi.json.
	document []byte
}

// New returns the API. Its handler still has to be wrapped by server.Wrap. The
// error says what is wrong with the table of routes.
func New(deps Deps, config Config) (*API, error) {
	a := &API{deps: deps, config: config.withDefaults(), mux: http.NewServeMux(), contract: tolerant{strictjson.Decoder{Tolerant: true}}}
	a.open, a.close = context.WithCancel(context.Background())
	a.deps.Faults.Infrastructure = append(slices.Clone(deps.Faults.Infrastructure), postgres.IsInfrastructure)
	a.schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	routes := a.routes()
	a.huma = humago.New(routeMux{a, routes}, a.humaConfig())
	a.huma.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(badRequestContext{ctx}) })
	var errs []error
	for _, r := range routes {
		errs = append(errs, a.register(r))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var err error
	a.document, err = a.openAPI()
	return a, err
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close has requests answered that wait for something to happen. It is called when the
// server begins to stop, and may be called again.
func (a *API) Close() { a.close() }

// OpenAPI returns the document that /openapi.json answers with.
func (a *API) OpenAPI() []byte { return a.document }
