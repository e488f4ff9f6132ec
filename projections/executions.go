package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ExecutionsName is the name of the consumer that builds execution_views, and so
// of its consumer group. Changing it builds the table again from the start.
const ExecutionsName = "executions-view"

// executionsGather: lists may be this much behind while there is much to do. Get by
// id reads the write model, which never is.
const executionsGather = 50 * time.Millisecond

// Executions returns the consumer that builds execution_views from
// execution_events.
func Executions() pipeline.Consumer {
	views := executionViews()
	return pipeline.Consumer{
		Name:  ExecutionsName,
		Topic: topics.ExecutionEvents,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.Envelope) error {
			return applyExecutions(ctx, tx, views, batch)
		}),
		GuardedByState: true,
		BatchSize:      500,
		Gather:         executionsGather,
	}
}

func applyExecutions(ctx context.Context, tx execer, views table[executionRow], events []topics.Envelope) error {
	rows, err := foldExecutions(events)
	if err != nil {
		return pipeline.Malformed(err)
	}
	return views.merge(ctx, tx, rows)
}

// errUnversioned: an event of an execution must say which version it leads to,
// or nothing could tell whether it is older than what is there.
var errUnversioned = errors.New("the event carries no subject or no sequence")

// foldExecutions folds events into one row per execution, by the same rules by
// which rows are merged into the table, ordered by id. Types that the view does
// not know are passed over.
func foldExecutions(events []topics.Envelope) ([]*executionRow, error) {
	byID := make(map[string]*executionRow, len(events))
	for _, env := range events {
		if _, known := topics.Lookup(env.Type); !known {
			continue
		}
		if env.Subject == "" || env.Sequence < 1 {
			return nil, fmt.Errorf("fold %s: %w", env.Type, errUnversioned)
		}
		row := byID[env.Subject]
		if row == nil {
			row = &executionRow{id: env.Subject}
			byID[env.Subject] = row
		}
		row.version = max(row.version, env.Sequence)
		if env.Type == (topics.ExecutionOutput{}).EventType() {
			continue // nothing in it for a list, and the data may be large
		}
		event, err := topics.DecodeEvent(env)
		if err != nil {
			return nil, fmt.Errorf("fold %s of %s: %w", env.Type, env.Subject, err)
		}
		row.apply(env, event)
	}
	rows := make([]*executionRow, 0, len(byID))
	for _, row := range byID {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *executionRow) int { return strings.Compare(a.id, b.id) })
	return rows, nil
}
