package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) eventsSearchCommand() *cobra.Command {
	var search client.EventSearch
	var types []string
	var from, to string
	var limit int
	cmd := &cobra.Command{
		Use:   "search",
		Short: "Search the events that are recorded, the newest first",
		Long: `Search the event log, which keeps the events of the topics in event_log.topics for
retention.events. The newest come first, by their own time. Each filter may be repeated,
and any of its values will do. A search that is neither by subject nor by one type looks
at event after event: say from when.`,
		Example: `  millrace events search --type failed --from 24h
  millrace events search --subject 0198c0de-0000-7000-8000-000000000001 -o json
  millrace events search --topic flow-lifecycle-out --type 'io.serverlessworkflow.task.*' --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			search.Types = nil
			for _, t := range types {
				search.Types = append(search.Types, longType(t))
			}
			var err error
			if search.From, err = moment("--from", from, c.now()); err != nil {
				return err
			}
			if search.To, err = moment("--to", to, c.now()); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					found, err := firstOf(api.SearchEvents(ctx, search, pageOf(limit)), limit)
					if err != nil {
						return err
					}
					return render(c, w, foundEvents(found))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&search.Topics, "topic", nil, "only events of this topic, by its name at the broker (repeatable)")
	flags.StringSliceVar(&types, "type", nil, "only events of this type: in full, short as in failed, or with a * at its end (repeatable)")
	flags.StringSliceVar(&search.Subjects, "subject", nil, "only events of this subject: an execution, an instance (repeatable)")
	flags.StringSliceVar(&search.Keys, "key", nil, "only events of records with this key (repeatable)")
	flags.StringSliceVar(&search.Sources, "source", nil, "only events of this source (repeatable)")
	flags.StringVar(&from, "from", "", "only events since then: a time such as 2026-11-21T10:00:00Z or a duration such as 2h")
	flags.StringVar(&to, "to", "", "only events before then")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

func foundEvents(found []client.RecordedEvent) listing[client.RecordedEvent] {
	return listing[client.RecordedEvent]{
		items: found,
		name:  func(e client.RecordedEvent) string { return e.Event.ID },
		empty: "no events",
		columns: []column[client.RecordedEvent]{
			{title: "TIME", cell: func(e client.RecordedEvent) string { return e.Event.Time.UTC().Format(time.RFC3339Nano) }},
			{title: "TYPE", cell: func(e client.RecordedEvent) string { return e.Event.Type }},
			{title: "SUBJECT", cell: func(e client.RecordedEvent) string { return dash(e.Event.Subject) }},
			{title: "TOPIC", cell: func(e client.RecordedEvent) string { return e.Topic }},
			{title: "PLACE", cell: func(e client.RecordedEvent) string { return fmt.Sprintf("%d/%d", e.Partition, e.Offset) }},
			{title: "ID", wide: true, cell: func(e client.RecordedEvent) string { return e.Event.ID }},
			{title: "SOURCE", wide: true, cell: func(e client.RecordedEvent) string { return e.Event.Source }},
		},
	}
}
