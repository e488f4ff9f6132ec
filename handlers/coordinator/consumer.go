package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ConsumerName is the name of the coordinator's consumer and so its group:
// renaming it reads execution_events again from the start.
const ConsumerName = "coordinator"

// gather is short beside what an execution waits for anyway. Four of five events are
// none of the coordinator's business, and each fetch of a few of them costs the broker
// as much as one of many.
const gather = 5 * time.Millisecond

// Queue is what the consumer needs of the executions; *store.Store implements it.
type Queue interface {
	Queue(ctx context.Context, tx pgx.Tx, ids []string, rules store.Rules) error
	ResourceClasses(ctx context.Context, tx pgx.Tx) ([]store.ResourceClass, error)
	Committed()
}

// errNoPgx is a programming error: the consumer runs on a store without PostgreSQL.
var errNoPgx = errors.New("coordinator needs a PostgreSQL transaction")

// NewConsumer returns the subscription that queues requested executions.
//
// It is guarded by state: a request that comes again finds its execution past
// REQUESTED and changes nothing.
func NewConsumer(queue Queue, limits Limits) pipeline.Consumer {
	classes := newInventory(queue, limits)
	handle := func(ctx context.Context, tx pipeline.Tx, batch []topics.ExecutionRequested) error {
		under, ok := pipeline.PgxTx(tx)
		if !ok {
			return errNoPgx
		}
		ids := make([]string, len(batch))
		for i, e := range batch {
			ids[i] = e.ExecutionID
		}
		if err := classes.cover(ctx, under, batch); err != nil {
			return err
		}
		pipeline.AfterCommit(tx, queue.Committed)
		return queue.Queue(ctx, under, ids, limits.rules(classes))
	}
	return pipeline.Consumer{
		Name:           ConsumerName,
		Topic:          topics.ExecutionEvents,
		Handle:         pipeline.OnBatchTx(handle),
		GuardedByState: true,
		Gather:         gather,
	}
}
