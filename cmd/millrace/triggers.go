package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) triggersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "triggers",
		Aliases: []string{"trigger"},
		Short:   "Bind topics, webhooks and schedules to what they start",
		Long: `Bind topics, webhooks and schedules to the executions and workflows that they start, and
see how they are doing. A trigger is a YAML or JSON file; docs/trigger-format.md describes
the format.`,
		Example: `  millrace triggers lint triggers/
  millrace triggers apply orders.yaml
  millrace triggers list
  millrace triggers status orders --watch
  millrace triggers export > triggers.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.triggersApplyCommand(), c.triggersListCommand(), c.triggersGetCommand(), c.triggersStatusCommand(),
		c.triggersSwitchCommand(true), c.triggersSwitchCommand(false), c.triggersDeleteCommand(), c.triggersExportCommand(), c.triggersLintCommand(),
		c.triggersFiringsCommand(), c.triggersNextCommand(), c.triggersFireCommand())
	return cmd
}

// triggerTypes are the types of triggers.
func triggerTypes() []string { return []string{"kafka", "webhook", "schedule"} }

func (c *cli) triggersListCommand() *cobra.Command {
	var limit int
	var kind string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List triggers with their state",
		Long: `List triggers, by id. STATE is the worst of a trigger's members and partitions: error
means that something stands still and CAUSE says why, unowned that no process runs it.`,
		Example: `  millrace triggers list
  millrace triggers list --type kafka -o wide --watch`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				items, err := firstOf(api.Triggers(ctx, kind, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				return render(c, w, c.triggerListing(items))
			})
		},
	}
	cmd.Flags().StringVar(&kind, "type", "", "triggers of this type: kafka, webhook or schedule")
	_ = cmd.RegisterFlagCompletionFunc("type", fixed(triggerTypes())) // the flag exists
	addLimit(cmd, &limit)
	return cmd
}

func (c *cli) triggerListing(items []client.Trigger) listing[client.Trigger] {
	type trigger = client.Trigger
	now, wide := c.now(), c.output == "wide"
	return listing[trigger]{
		items: items,
		name:  func(t trigger) string { return t.ID },
		empty: "no triggers: make one with millrace triggers apply FILE",
		columns: []column[trigger]{
			{title: "ID", cell: func(t trigger) string { return t.ID }},
			{title: "TYPE", cell: func(t trigger) string { return t.Type }},
			{title: "STATE", cell: func(t trigger) string { return dash(t.State) }, paint: func(t trigger) int { return triggerColour(t.State) }},
			{title: "FOR", cell: func(t trigger) string { return ageOrDash(now, t.Since) }},
			{title: "REVISION", cell: func(t trigger) string { return fmt.Sprint(t.Revision) }},
			{title: "CHANGED", cell: func(t trigger) string { return age(now, t.UpdatedAt) }},
			{title: "CAUSE", cell: func(t trigger) string { return triggerCause(t.Cause, wide) }},
			{title: "TENANT", wide: true, cell: func(t trigger) string { return dash(t.Tenant) }},
			{title: "BY", wide: true, cell: func(t trigger) string { return dash(t.UpdatedBy) }},
			{title: "UID", wide: true, cell: func(t trigger) string { return t.UID }},
		},
	}
}

func triggerColour(state string) int {
	switch state {
	case "error", "unowned":
		return red
	case "starting":
		return yellow
	case "running":
		return green
	default:
		return plain
	}
}

func triggerCause(cause *client.TriggerCause, wide bool) string {
	if cause == nil {
		return "-"
	}
	return shorten(cause.Code+": "+cause.Message, wide)
}

func (c *cli) triggersGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Print a trigger's definition",
		Long: `Print a trigger's definition, as YAML, which can be applied again. Secrets are not in it:
it only says where they are. -o json prints the whole: uid, revision, who changed it and
how it is doing.`,
		Example: `  millrace triggers get orders > orders.yaml
  millrace triggers get orders -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			t, err := api.Trigger(ctx, id)
			if err != nil {
				return err
			}
			switch c.output {
			case "json":
				return c.document(w, t)
			case "name":
				_, err := fmt.Fprintln(w, t.ID)
				return err
			}
			return writeDefinitions(w, []client.Trigger{t})
		}),
	}
}

func (c *cli) triggersExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export [ID...]",
		Short: "Print the definitions of triggers, for applying them elsewhere",
		Long: `Print the definitions of all triggers, or of those named, as one YAML file, or with
-o json as one JSON document. Applied to another installation it makes the same triggers;
applied to this one it changes nothing. Secrets are not in it.`,
		Example: `  millrace triggers export > triggers.yaml
  millrace --url https://staging.example.org triggers apply triggers.yaml`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				items, err := exported(cmd.Context(), api, ids)
				switch {
				case err != nil:
					return err
				case c.output == "json":
					list := make([]json.RawMessage, len(items))
					for i, t := range items {
						list[i] = t.Definition
					}
					return c.document(c.out, map[string]any{"triggers": list})
				case c.output == "name":
					return render(c, c.out, c.triggerListing(items))
				}
				if len(items) == 0 {
					c.notef("there are no triggers")
				}
				return writeDefinitions(c.out, items)
			})
		},
	}
}

func exported(ctx context.Context, api *client.Client, ids []string) ([]client.Trigger, error) {
	if len(ids) == 0 {
		return firstOf(api.Triggers(ctx, "", pageSize), 0)
	}
	var items []client.Trigger
	for _, id := range ids {
		t, err := api.Trigger(ctx, id)
		if err != nil {
			return nil, err
		}
		items = append(items, t)
	}
	return items, nil
}

// writeDefinitions writes definitions as the documents of a YAML file.
func writeDefinitions(w io.Writer, items []client.Trigger) error {
	for i, t := range items {
		text, err := toYAML(t.Definition)
		if err != nil {
			return fmt.Errorf("print trigger %s: %w", t.ID, err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) triggersSwitchCommand(on bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable ID...",
		Short: "Switch triggers off",
		Long: `Switch triggers off: they receive nothing until they are switched on. What they have
started goes on. A Kafka trigger keeps its place for as long as the brokers remember it
(offsets.retention.minutes, 7 days by default).`,
		Example: `  millrace triggers disable orders`,
	}
	if on {
		cmd = &cobra.Command{
			Use:   "enable ID...",
			Short: "Switch triggers on",
			Long: `Switch triggers on. A Kafka trigger goes on where it was, a schedule with
its next time.`,
			Example: `  millrace triggers enable orders`,
		}
	}
	cmd.Args = args(cobra.MinimumNArgs(1))
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		status := map[bool]string{true: "enabled", false: "disabled"}[on]
		return c.withAPI(func(api *client.Client) error {
			return c.changeTriggers(ids, func(id string) (changedTrigger, error) {
				t, err := api.SwitchTrigger(cmd.Context(), id, on)
				return changedTrigger{Trigger: t, Status: status}, err
			})
		})
	}
	return cmd
}

func (c *cli) triggersDeleteCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "delete ID...",
		Aliases: []string{"rm"},
		Short:   "Delete triggers",
		Long: `Delete triggers. What they have started goes on, and their names are free. To stop one for
a while use disable.`,
		Example: `  millrace triggers delete orders`,
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.changeTriggers(ids, func(id string) (changedTrigger, error) {
					t, err := api.DeleteTrigger(cmd.Context(), id, dryRun)
					return changedTrigger{Trigger: t, Status: "deleted", DryRun: dryRun}, err
				})
			})
		},
	}
	addDryRun(cmd, &dryRun)
	return cmd
}

func addDryRun(cmd *cobra.Command, dryRun *bool) {
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "say what would happen, and change nothing")
}

// changedTrigger is a trigger and what became of it.
type changedTrigger struct {
	client.Trigger
	Status string `json:"status"`
	DryRun bool   `json:"dry_run,omitempty"`
	File   string `json:"file,omitempty"`
}

// changeTriggers changes triggers one after the other, and prints what became of them also
// when one of them failed.
func (c *cli) changeTriggers(ids []string, do func(id string) (changedTrigger, error)) error {
	var done []changedTrigger
	var failure error
	for _, id := range ids {
		t, err := do(id)
		if err != nil {
			failure = err
			break
		}
		done = append(done, t)
	}
	return c.printTriggers(done, failure)
}

// printTriggers prints what was done, if anything was, and returns what failed.
func (c *cli) printTriggers(done []changedTrigger, failure error) error {
	if len(done) == 0 {
		return failure
	}
	if err := render(c, c.out, changedListing(done)); err != nil {
		return err
	}
	return failure
}

func changedListing(items []changedTrigger) listing[changedTrigger] {
	files := false
	for _, t := range items {
		files = files || t.File != ""
	}
	l := listing[changedTrigger]{
		items: items,
		name:  func(t changedTrigger) string { return t.ID },
		columns: []column[changedTrigger]{
			{title: "ID", cell: func(t changedTrigger) string { return t.ID }},
			{title: "TYPE", cell: func(t changedTrigger) string { return t.Type }},
			{title: "REVISION", cell: func(t changedTrigger) string { return fmt.Sprint(t.Revision) }},
			{title: "STATUS", cell: func(t changedTrigger) string {
				if t.DryRun {
					return t.Status + " (dry run)"
				}
				return t.Status
			}},
		},
	}
	if files {
		l.columns = append(l.columns, column[changedTrigger]{title: "FILE", cell: func(t changedTrigger) string { return dash(t.File) }})
	}
	return l
}

// nextText shows in how long something is tried again.
func nextText(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return span(max(at.Sub(now), 0))
}
