package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) outboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Look at events that do not get to the broker, and resolve them",
		Long: `Look at events that the broker rejected, try them again or skip them, and publish
again what was published. An event that was rejected holds up the later ones of its
aggregate, for example of its execution, and those of no other.`,
		Example: `  millrace outbox backlog
  millrace outbox list --state FAILED
  millrace outbox retry --all
  millrace outbox skip 4711 --reason 'larger than the broker takes'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.outboxListCommand(), c.outboxBacklogCommand(), c.outboxRetryCommand(), c.outboxSkipCommand(), c.outboxRepublishCommand())
	return cmd
}

// outboxStates are the states of events that outbox list shows.
func outboxStates() []string { return []string{"FAILED", "WAITING"} }

func (c *cli) outboxListCommand() *cobra.Command {
	var filter client.OutboxFilter
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List events that the broker rejected, oldest first",
		Long: `List events that the broker rejected, oldest first: FAILED ones wait for somebody,
WAITING ones are tried again. BEHIND is how many events wait for each.`,
		Example: `  millrace outbox list
  millrace outbox list --state FAILED --topic execution_events -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter.State = strings.ToUpper(filter.State)
			if filter.State != "" && filter.State != outboxStates()[0] && filter.State != outboxStates()[1] {
				return usagef("--state: %q is none of %s", filter.State, strings.Join(outboxStates(), ", "))
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					return c.listOutbox(ctx, w, api, filter, limit)
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only events in this state: FAILED or WAITING")
	flags.StringVar(&filter.Topic, "topic", "", "only events for this topic (logical name)")
	flags.StringVar(&filter.AggregateID, "aggregate", "", "only events of the aggregate with this id")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("state", fixed(outboxStates())) // the flag exists
	return cmd
}

func (c *cli) listOutbox(ctx context.Context, w io.Writer, api *client.Client, filter client.OutboxFilter, limit int) error {
	filter.PageSize = pageSize
	if limit > 0 {
		filter.PageSize = min(limit, pageSize)
	}
	var items []client.OutboxEvent
	for e, err := range api.OutboxEvents(ctx, filter) {
		if err != nil {
			return err
		}
		items = append(items, e)
		if len(items) == limit {
			break
		}
	}
	return render(c, w, c.outboxListing(items))
}

func (c *cli) outboxListing(items []client.OutboxEvent) listing[client.OutboxEvent] {
	now := c.now()
	type event = client.OutboxEvent
	return listing[event]{
		items: items,
		name:  func(e event) string { return strconv.FormatInt(e.Seq, 10) },
		empty: "no events that the broker rejected",
		columns: []column[event]{
			{title: "SEQ", cell: func(e event) string { return strconv.FormatInt(e.Seq, 10) }},
			{title: "STATE", cell: func(e event) string { return e.State }, paint: func(e event) int {
				if e.State == "FAILED" {
					return red
				}
				return yellow
			}},
			{title: "TOPIC", cell: func(e event) string { return e.Topic }},
			{title: "AGGREGATE", cell: func(e event) string { return e.AggregateType + "/" + e.AggregateID }},
			{title: "ATTEMPTS", cell: func(e event) string { return strconv.Itoa(e.Attempts) }},
			{title: "AGE", cell: func(e event) string { return age(now, e.CreatedAt) }},
			{title: "BEHIND", cell: func(e event) string { return strconv.FormatInt(e.Behind, 10) }},
			{title: "ERROR", cell: func(e event) string { return shorten(e.LastError, c.output == "wide") }},
			{title: "EVENT", wide: true, cell: func(e event) string { return e.EventID }},
			{title: "TYPE", wide: true, cell: func(e event) string { return e.EventType }},
			{title: "NEXT", wide: true, cell: func(e event) string {
				if e.NextAttemptAt == nil {
					return "-"
				}
				return span(max(e.NextAttemptAt.Sub(now), 0))
			}},
		},
	}
}

func (c *cli) outboxBacklogCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backlog",
		Short: "Show what has not been published, by topic",
		Long: `Show how many events have not been published, by topic, and how old the oldest is.
WAITING ones were rejected and are tried again; FAILED ones wait for somebody.`,
		Example: `  millrace outbox backlog
  millrace outbox backlog --watch=5s`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					backlog, err := api.OutboxBacklog(ctx)
					if err != nil {
						return err
					}
					return c.printBacklog(w, backlog)
				})
			})
		},
	}
}

// printBacklog prints the whole as a document, and one row per topic as a table.
func (c *cli) printBacklog(w io.Writer, b client.OutboxBacklog) error {
	type topic = client.OutboxBacklog
	if c.output == "json" || c.output == "yaml" {
		return c.document(w, b)
	}
	return render(c, w, listing[topic]{
		items: b.Topics,
		name:  func(t topic) string { return t.Topic },
		empty: "everything is published",
		columns: []column[topic]{
			{title: "TOPIC", cell: func(t topic) string { return t.Topic }},
			{title: "PENDING", cell: func(t topic) string { return fmt.Sprint(t.Pending) }},
			{title: "OLDEST", cell: func(t topic) string { return retentionText(t.OldestAge) }},
			{title: "WAITING", cell: func(t topic) string { return fmt.Sprint(t.Waiting) }},
			{title: "FAILED", cell: func(t topic) string { return fmt.Sprint(t.Failed) }},
		},
	})
}
