package pipelinetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

// newNotifier asks for another execution to be cancelled when one fails.
func newNotifier() pipeline.Consumer {
	return pipeline.Consumer{
		Name:  "notifier",
		Topic: topics.ExecutionEvents,
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e topics.ExecutionFailed) error {
			if e.Attempt > 3 {
				return pipeline.Permanent(errors.New("too late to tell anybody"))
			}
			if _, err := tx.Exec(ctx, `UPDATE failures SET seen = seen + 1 WHERE id = $1`, e.ExecutionID); err != nil {
				return err
			}
			return tx.Publish(ctx, topics.ExecutionCancelRequested{ExecutionID: e.ExecutionID, Attempt: e.Attempt, By: "notifier"})
		}),
	}
}

func ExampleNew() {
	t := new(testing.T) // in a test, its own t
	h := pipelinetest.New(t, newNotifier(), pipelinetest.WithContext(context.Background()))

	failed := example[topics.ExecutionFailed]()
	failed.ExecutionID, failed.Attempt = "e-1", 1
	fmt.Println(h.Feed(failed))
	fmt.Println(h.Published()[0].EventType(), h.Published()[0].EventKey())
	fmt.Println(h.Statements()[0].Args)

	// The broker delivers it again, since our ack got lost.
	again, _ := h.Redeliver()
	fmt.Println(again, len(h.Published()))

	failed.Attempt = 4
	fmt.Println(h.Feed(failed))
	fmt.Println(h.DeadLetters()[0].Reason)
	// Output:
	// [done]
	// millrace.execution.cancel_requested.v1 e-1
	// [e-1]
	// [duplicate] 1
	// [dead_lettered]
	// too late to tell anybody
}
