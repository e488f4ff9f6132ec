package coordinator

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ConsumerName is the name of the coordinator's consumer and so its group:
// renaming it reads execution_events again from the start.
const ConsumerName = "coordinator"

// Queue is what the consumer needs of the executions; *store.Store implements it.
type Queue interface {
	Queue(ctx context.Context, tx pgx.Tx, ids []string, validate store.Validator) error
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
		return queue.Queue(ctx, under, ids, limits.validate)
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
	// Concurrency is how many slots may be in use at once, by resource class. A
	// class that is not in it has no limit beyond what its workers announce.
	Concurrency map[string]int
}

// validate rejects what could never be admitted.
func (l Limits) validate(e *execution.Execution) (reason, message string) {
	limit, limited := l.Concurrency[e.Request.ResourceClass]
	if limited && limit > 0 && e.Slots() > limit {
		return topics.RejectedExceedsCapacity, "the execution needs more slots than its resource class may use at once"
	}
	return "", ""
}
