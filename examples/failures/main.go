// Command failures keeps a table of its own up to date from the events of a
// running pipeline: how many executions failed, by reason. Each failure is counted
// once, whatever is delivered twice or dies in between, since the count, the note
// that the event was applied and the position in the topic are one transaction.
//
// Start a pipeline with `millrace up`, and in another terminal
//
//	go run ./examples/failures
package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func main() { app.Main(app.Consumer(NewFailures)) }

const schema = `CREATE TABLE IF NOT EXISTS example_failures (reason text PRIMARY KEY, executions bigint NOT NULL)`

// NewFailures counts failed executions by reason.
func NewFailures(pool *pgxpool.Pool) (pipeline.Consumer, error) {
	if _, err := pool.Exec(context.Background(), schema); err != nil {
		return pipeline.Consumer{}, fmt.Errorf("create table: %w", err)
	}
	return failures(), nil
}

func failures() pipeline.Consumer {
	return pipeline.Consumer{
		Name:   "example-failures",
		Topic:  topics.ExecutionEvents,
		Handle: pipeline.OnTx(countFailure),
	}
}

func countFailure(ctx context.Context, tx pipeline.Tx, e topics.ExecutionFailed) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO example_failures (reason, executions) VALUES ($1, 1)
		ON CONFLICT (reason) DO UPDATE SET executions = example_failures.executions + 1`, e.Failure.Reason)
	return err
}
