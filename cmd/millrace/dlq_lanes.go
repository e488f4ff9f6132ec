package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dlqLanesCommand() *cobra.Command {
	var consumer string
	var limit int
	cmd := &cobra.Command{
		Use:   "lanes",
		Short: "List the keys that wait behind a dead letter",
		Long: `List the keys that wait behind a dead letter, with how many events of each are parked.
Only consumers that are ordered per key park. A lane moves when its dead letter is
redriven or discarded, and is gone when it is empty.`,
		Example: `  millrace dlq lanes
  millrace dlq lanes --consumer billing -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				size := pageSize
				if limit > 0 {
					size = min(limit, pageSize)
				}
				var lanes []client.Lane
				for l, err := range api.Lanes(ctx, consumer, size) {
					if err != nil {
						return err
					}
					if c.output == "name" && l.DeadLetterID == "" {
						continue // it waits for nobody
					}
					if lanes = append(lanes, l); len(lanes) == limit {
						break
					}
				}
				return render(c, w, c.laneListing(lanes))
			})
		},
	}
	cmd.Flags().StringVar(&consumer, "consumer", "", "only lanes of this consumer")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

// laneListing is how lanes are printed. Their names are those of their dead letters,
// to be piped into redrive or discard.
func (c *cli) laneListing(lanes []client.Lane) listing[client.Lane] {
	now := c.now()
	return listing[client.Lane]{
		items: lanes,
		name:  func(l client.Lane) string { return dash(l.DeadLetterID) },
		empty: "no key waits",
		columns: []column[client.Lane]{
			{title: "DEAD LETTER", cell: func(l client.Lane) string { return dash(l.DeadLetterID) }},
			{title: "STATE", cell: func(l client.Lane) string { return l.State }, paint: laneColour},
			{title: "CONSUMER", cell: func(l client.Lane) string { return l.Consumer }},
			{title: "PARTITION", cell: func(l client.Lane) string { return fmt.Sprintf("%s/%d", l.Topic, l.Partition) }},
			{title: "KEY", cell: func(l client.Lane) string { return bytesText(l.Key) }},
			{title: "PARKED", cell: func(l client.Lane) string { return fmt.Sprint(l.Parked) }},
			{title: "OLDEST", cell: func(l client.Lane) string { return ageOrDash(now, l.OldestAt) }},
			{title: "OPENED", wide: true, cell: func(l client.Lane) string { return age(now, l.OpenedAt) }},
			{title: "ERROR", wide: true, cell: func(l client.Lane) string { return dash(l.Error) }},
		},
	}
}

func ageOrDash(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return age(now, *at)
}

func laneColour(l client.Lane) int {
	switch l.State {
	case "BLOCKED", "STALLED":
		return red
	default:
		return green
	}
}

// parkedText says how many events wait behind a dead letter.
func parkedText(l client.DeadLetter) string {
	if l.Lane == nil {
		return "-"
	}
	return fmt.Sprint(l.Lane.Parked)
}

// laneText says in words what waits behind a dead letter.
func (c *cli) laneText(l client.DeadLetter) string {
	if l.Lane == nil {
		return ""
	}
	text := fmt.Sprintf("%s, %d events of its key wait", l.Lane.State, l.Lane.Parked)
	if l.Lane.OldestAt != nil {
		text += ", the first since " + c.timeText(l.Lane.OldestAt)
	}
	if l.Lane.Error != "" {
		text += ": " + l.Lane.Error
	}
	return text
}
