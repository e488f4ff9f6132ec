package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// instanceStatuses are those of workflow instances and tasks.
func instanceStatuses() []string {
	return []string{"CREATED", "RUNNING", "SUSPENDED", "WAITING", "COMPLETED", "FAULTED", "CANCELLED"}
}

func (c *cli) instanceListCommand() *cobra.Command {
	var filter client.InstanceFilter
	var order string
	var limit int
	var since time.Duration
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List workflow instances, newest first",
		Long: `List workflow instances, newest first. What the flags select must all hold; --filter
takes any other condition as JSON, such as {"input":{"path":"customer.id","eq":"c-1"}}
or {"not":{"end":{"is_null":true}}}: see docs/data-index-queries.md.`,
		Example: `  millrace data-index list --status FAULTED --since 24h
  millrace data-index list --search 'card refused' -o json
  millrace data-index list --filter '{"input":{"path":"customer.id","eq":"c-1"}}'`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case limit < 0:
				return usagef("--limit: want 0 or more, not %d", limit)
			case since < 0:
				return usagef("--since: want 0 or more, not %s", since)
			}
			if err := checkJSON(filter.JSON); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					if since > 0 {
						filter.StartedAfter = c.now().Add(-since)
					}
					found, err := firstOf(api.WorkflowInstances(ctx, filter, order, pageOf(limit)), limit)
					if err != nil {
						return err
					}
					return render(c, w, c.instanceListing(found))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&filter.Statuses, "status", nil, "only instances in this status (repeatable)")
	flags.StringVar(&filter.Name, "name", "", "only instances of the definition with this name")
	flags.StringVar(&filter.NamePrefix, "name-prefix", "", "only instances of definitions whose name begins so")
	flags.StringVar(&filter.Namespace, "namespace", "", "only instances of definitions in this namespace")
	flags.StringVar(&filter.Version, "version", "", "only instances of this version")
	flags.DurationVar(&since, "since", 0, "only instances that started within this time")
	flags.StringVar(&filter.Search, "search", "", "only instances with these words in names, errors, input or output")
	flags.StringVar(&filter.JSON, "filter", "", "a further filter, as JSON")
	flags.StringVar(&order, "order", "", "fields to order by, separated by commas; a minus turns one round")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(instanceStatuses())) // the flag exists
	return cmd
}

// checkJSON finds a filter that is no JSON before the server does, with the flag's name.
func checkJSON(text string) error {
	if text != "" && !json.Valid([]byte(text)) {
		return usagef("--filter: is not JSON: want an object such as {\"name\":{\"like\":\"order%%\"}}")
	}
	return nil
}

func statusColour(status string) int {
	switch status {
	case "COMPLETED":
		return green
	case "FAULTED":
		return red
	case "RUNNING":
		return blue
	case "SUSPENDED", "WAITING", "CANCELLED":
		return yellow
	}
	return plain
}

// took is how long something took, or has taken so far.
func took(now time.Time, start, end *time.Time) string {
	switch {
	case start == nil:
		return "-"
	case end == nil:
		return age(now, *start)
	}
	return span(max(end.Sub(*start), 0))
}

func started(now time.Time, start *time.Time) string {
	if start == nil {
		return "-"
	}
	return age(now, *start) + " ago"
}

func (c *cli) instanceListing(found []client.WorkflowInstance) listing[client.WorkflowInstance] {
	type row = client.WorkflowInstance
	now := c.now()
	return listing[row]{
		items: found,
		name:  func(w row) string { return w.ID },
		empty: "no workflow instance is selected",
		columns: []column[row]{
			{title: "ID", cell: func(w row) string { return w.ID }},
			{title: "STATUS", cell: func(w row) string { return dash(w.Status) }, paint: func(w row) int { return statusColour(w.Status) }},
			{title: "NAME", cell: func(w row) string { return dash(w.Name) }},
			{title: "VERSION", cell: func(w row) string { return dash(w.Version) }},
			{title: "STARTED", cell: func(w row) string { return started(now, w.Start) }},
			{title: "TOOK", cell: func(w row) string { return took(now, w.Start, w.End) }},
			{title: "NAMESPACE", wide: true, cell: func(w row) string { return dash(w.Namespace) }},
			{title: "ERROR", wide: true, cell: func(w row) string { return dash(errorText(w.Error)) }},
		},
	}
}

func errorText(e *client.InstanceError) string {
	if e == nil {
		return ""
	}
	for _, text := range []string{e.Title, e.Detail, e.Type} {
		if text != "" {
			return text
		}
	}
	return ""
}

func (c *cli) instanceGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show one workflow instance in full",
		Long:  `Show one workflow instance with its times, its error, its input and its output.`,
		Example: `  millrace data-index get 01KSGKY66DMS0KPPMFMMR3BJZX
  millrace data-index get 01KSGKY66DMS0KPPMFMMR3BJZX -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			instance, err := api.WorkflowInstance(ctx, id)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeInstance(w, instance)
			}
			l := c.instanceListing([]client.WorkflowInstance{instance})
			l.single = true
			return render(c, w, l)
		}),
	}
}

// describeInstance writes an instance as lines of name and value.
func (c *cli) describeInstance(w io.Writer, i client.WorkflowInstance) error {
	tabs := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value = oneLine(value); value != "" {
			_, _ = fmt.Fprintf(tabs, "%s:\t%s\n", name, value) // Flush reports errors
		}
	}
	at := func(name string, t *time.Time) {
		if t != nil {
			line(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	line("ID", i.ID)
	status := i.Status
	if i.Placeholder {
		status = "(placeholder: only events of its tasks have come)"
	}
	line("Status", painted(status, c.colours(), statusColour(i.Status)))
	line("Workflow", strings.Trim(i.Namespace+"/"+i.Name, "/"))
	line("Version", i.Version)
	at("Start", i.Start)
	at("End", i.End)
	if i.Start != nil {
		line("Took", took(c.now(), i.Start, i.End))
	}
	at("Last update", i.LastUpdate)
	if e := i.Error; e != nil {
		line("Error", errorText(e))
		line("Detail", e.Detail)
		line("Type", e.Type)
		if e.Status != nil {
			line("Code", fmt.Sprint(*e.Status))
		}
		line("At", e.Instance)
	}
	if i.EventsFuture {
		line("Note", "one of its events claimed to come from the future")
	}
	line("Input", string(i.Input))
	line("Output", string(i.Output))
	return tabs.Flush()
}

func (c *cli) instanceTasksCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tasks ID",
		Short: "List the tasks of a workflow instance",
		Long:  `List the tasks of a workflow instance in the order of their start.`,
		Example: `  millrace data-index tasks 01KSGKY66DMS0KPPMFMMR3BJZX
  millrace data-index tasks 01KSGKY66DMS0KPPMFMMR3BJZX --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			found, err := firstOf(api.TasksOf(ctx, id, pageSize), 0)
			if err != nil {
				return err
			}
			return render(c, w, c.taskListing(found))
		}),
	}
}

func (c *cli) taskListing(found []client.TaskInstance) listing[client.TaskInstance] {
	type row = client.TaskInstance
	now := c.now()
	return listing[row]{
		items: found,
		name:  func(t row) string { return t.ID },
		empty: "the instance has no tasks",
		columns: []column[row]{
			{title: "POSITION", cell: func(t row) string { return t.Position }},
			{title: "NAME", cell: func(t row) string { return dash(t.Name) }},
			{title: "STATUS", cell: func(t row) string { return dash(t.Status) }, paint: func(t row) int { return statusColour(t.Status) }},
			{title: "TURN", cell: func(t row) string { return fmt.Sprint(t.Iteration) }},
			{title: "ATTEMPT", cell: func(t row) string { return fmt.Sprint(t.Attempt) }},
			{title: "STARTED", cell: func(t row) string { return started(now, t.Start) }},
			{title: "TOOK", cell: func(t row) string { return took(now, t.Start, t.End) }},
			{title: "ERROR", wide: true, cell: func(t row) string { return dash(errorText(t.Error)) }},
		},
	}
}
