package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ConsumerName is the name of the coordinator's consumer and so its group:
// renaming it reads execution_events again from the start.
const ConsumerName = "coordinator"

// Queue is what the consumer needs of the executions; *store.Store implements it.
type Queue interface {
	Queue(ctx context.Context, tx pgx.Tx, ids []string, rules store.Rules) error
	Committed()
}

// errNoPgx is a programming error: the consumer runs on a store without PostgreSQL.
var errNoPgx = errors.New("coordinator needs a PostgreSQL transaction")

// NewConsumer returns the subscription that queues requested executions.
//
// It is guarded by state: a request that comes again finds its execution past
// REQUESTED and changes nothing.
func NewConsumer(queue Queue, limits Limits) pipeline.Consumer {
	handle := func(ctx context.Context, tx pipeline.Tx, batch []topics.ExecutionRequested) error {
		under, ok := pipeline.PgxTx(tx)
		if !ok {
			return errNoPgx
		}
		ids := make([]string, len(batch))
		for i, e := range batch {
			ids[i] = e.ExecutionID
		}
		pipeline.AfterCommit(tx, queue.Committed)
		return queue.Queue(ctx, under, ids, limits.rules())
	}
	return pipeline.Consumer{
		Name:           ConsumerName,
		Topic:          topics.ExecutionEvents,
		Handle:         pipeline.OnBatchTx(handle),
		GuardedByState: true,
	}
}

// Limits are the configured bounds of the coordinator.
type Limits struct {
	// Set has the limits of rate and concurrency; nil is none.
	Set *limits.Set
	// Classes has the bounds of resource classes. A class that is not in it has none
	// beyond what its workers announce.
	Classes map[string]Class
	// Weights are the shares of users of what is free, by "tenant/user". The default
	// is 1.
	Weights map[string]float64
	// QueueDepth bounds how many executions wait.
	QueueDepth QueueDepth
	// Overtake is how long an execution that fits into no gap lets others pass.
	Overtake time.Duration
}

// Class bounds what of a resource class is in use at once.
type Class struct {
	// Cap is zero for what has no bound.
	Cap admission.Resources
}

// QueueDepth bounds how many executions wait; 0 is any number.
type QueueDepth struct{ User, Total int }

// rules are what requests are judged by.
func (l Limits) rules() store.Rules {
	return store.Rules{Validate: l.validate, Limits: l.Set, UserDepth: l.QueueDepth.User, TotalDepth: l.QueueDepth.Total}
}

// choice says how an admitter chooses.
func (l Limits) choice() admission.Config {
	return admission.Config{Limits: l.Set, Overtake: l.Overtake, Weight: func(tenant, user string) float64 {
		if w := l.Weights[tenant+"/"+user]; w > 0 {
			return w
		}
		return 1
	}}
}

// validate rejects what could never be admitted.
func (l Limits) validate(e *execution.Execution) (reason, message string) {
	need, limit := admission.Need(e.Request.Requirements), l.Classes[e.Request.ResourceClass].Cap
	for kind, most := range limit {
		if most > 0 && need[kind] > most {
			return "exceeds_capacity", "the execution needs more than its resource class may use at once"
		}
	}
	return "", ""
}
