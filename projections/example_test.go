package projections_test

import (
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// Users is one row per user: since when they ask for work, and what they asked for last.
func Users() projections.Projection {
	t := projections.NewTable("user_views", projections.ByTime)
	t.Key("user_name", projections.Text, "the user")
	since := t.Lowest("since", projections.Time, "when they first asked for something")
	last := t.Last("last_execution", projections.Text, "the execution they asked for last")

	return projections.Projection{
		Name:   "users-view", // also the consumer group
		Topic:  topics.ExecutionEvents,
		Tables: []*projections.Table{t},
		Apply: func(b *projections.Batch, e projections.Event) error {
			if e.Type != (topics.ExecutionRequested{}).EventType() {
				return nil
			}
			requested, err := topics.Decode[topics.ExecutionRequested](e.Envelope)
			if err != nil {
				return err // of this record alone: a dead letter
			}
			row := b.Row(t, requested.Request.User)
			row.Set(since, requested.RequestedAt)
			row.Set(last, requested.ExecutionID)
			return nil
		},
	}
}
