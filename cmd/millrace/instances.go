package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) instancesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "instances",
		Aliases: []string{"instance"},
		Short:   "Start instances of workflows, look at them, lead them on",
		Long: `An instance is one run of a workflow. Its engine leads it from step to step; workers do
its jobs, people its user tasks.

Instances are shown as they are at the moment. "millrace data-index" shows what is known
from events, of instances of other engines too.`,
		Example: `  millrace instances start LOS::loan-application-full --var loanAmount=200000000 --wait
  millrace instances list --status FAILED
  millrace instances history 0198c0de-0000-7000-8000-000000000001
  millrace instances signal 0198c0de-0000-7000-8000-000000000001 await-settlement --var settled=true`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.instancesStartCommand(), c.instancesListCommand(), c.instancesGetCommand(), c.instancesHistoryCommand(),
		c.instancesAuditCommand(), c.instancesWatchCommand(), c.instancesSignalCommand(),
		c.instanceAction("cancel", "End an instance",
			"End an instance. What is open is void: its jobs are not given out any more. With\n--compensate what it has done is undone first."),
		c.instanceAction("suspend", "Keep an instance from going on", "Keep an instance from going on. Its jobs are not given out until it is resumed."),
		c.instanceAction("resume", "Let a suspended instance go on", "Let a suspended instance go on with what came meanwhile."),
		c.instanceAction("retry", "Let a failed instance go on",
			"Let a failed instance go on: the step that failed is entered again, or the one that\n--step names. Variables can be mended on the way."),
		c.instanceAction("compensate", "Undo what an instance has done", "Undo what an instance has done, whatever its status: the last step first."))
	return cmd
}

// variableFlags are the flags that make variables.
type variableFlags struct {
	whole string
	pairs []string
}

func (f *variableFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.whole, "variables", "", "variables as a JSON object, or @FILE to read them from a file (@- from stdin)")
	cmd.Flags().StringArrayVar(&f.pairs, "var", nil, "one variable, NAME=VALUE: JSON if it is, else a text (repeatable)")
}

// object returns the variables as a JSON object; nil: none were given.
func (f *variableFlags) object(c *cli) (json.RawMessage, error) {
	text, err := f.text(c)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil || all == nil {
			return nil, usagef("--variables: want a JSON object such as {\"name\": \"Alice\"}")
		}
		if len(f.pairs) == 0 {
			return json.RawMessage(text), nil // as it was written
		}
	}
	for _, pair := range f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--var: want NAME=VALUE, not %q", pair)
		}
		all[name] = json.RawMessage(value)
		if !json.Valid([]byte(value)) {
			all[name], _ = json.Marshal(value) // a text always can be
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

func (f *variableFlags) text(c *cli) (string, error) {
	name, isFile := strings.CutPrefix(f.whole, "@")
	if !isFile {
		return f.whole, nil
	}
	if name == "-" {
		text, err := io.ReadAll(c.in)
		return string(text), err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", usagef("--variables: %s", err)
	}
	return string(text), nil
}

func (c *cli) instancesStartCommand() *cobra.Command {
	var request client.StartInstance
	var variables variableFlags
	var key string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "start DEFINITION",
		Short: "Start an instance of a workflow",
		Long: `Start an instance of a workflow, of its latest version unless --version says another.
With --wait its progress is shown until it ends; the exit code is then 1 unless it is
COMPLETED.`,
		Example: `  millrace instances start greet-workflow --var name=Alice
  millrace instances start LOS::loan-application-full --variables @application.json --business-key APP-1 --wait`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			var err error
			request.DefinitionID = names[0]
			if request.Variables, err = variables.object(c); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				i, err := api.Start(cmd.Context(), request, key)
				if err != nil {
					return err
				}
				if wait {
					return c.awaitInstance(cmd.Context(), api, i, timeout)
				}
				if c.output == "table" || c.output == "wide" {
					c.notef("follow it with: millrace instances watch %s", i.ID)
				}
				return render(c, c.out, c.startedListing([]client.Instance{i}, true))
			})
		},
	}
	flags := cmd.Flags()
	variables.addTo(cmd)
	flags.IntVar(&request.DefinitionVersion, "version", 0, "version of the definition (default the latest)")
	flags.StringVar(&request.BusinessKey, "business-key", "", "what you call it")
	flags.StringVar(&request.ID, "id", "", "id of your making (UUID): the same command again gives the same instance")
	flags.StringVar(&key, "idempotency-key", "", "repeating the command under the same key gives the same instance")
	flags.IntVar(&request.Priority, "priority", 0, "1 to 5, the most urgent (default 3)")
	flags.StringVar(&request.CorrelationID, "correlation-id", "", "carried by all events of the instance")
	flags.BoolVar(&wait, "wait", false, "wait until it has ended")
	flags.DurationVar(&timeout, "timeout", 0, "with --wait: wait no longer than this; the instance goes on")
	return cmd
}

// awaitInstance shows the progress of an instance until it ends.
func (c *cli) awaitInstance(ctx context.Context, api *client.Client, i client.Instance, timeout time.Duration) error {
	interrupted := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c.notef("instance %s", i.ID)
	i, err := follow(ctx, c, i, following[client.Instance]{
		noun: "instance", id: i.ID, status: "millrace instances get " + i.ID,
		// What is short is over before the first look.
		fetch:    func(ctx context.Context) (client.Instance, error) { return api.Instance(ctx, i.ID, followEvery) },
		goesOn:   func(i client.Instance) bool { return !i.Ended() && i.Status != "NEEDS_ATTENTION" },
		progress: instanceProgress,
	})
	switch {
	case interrupted.Err() != nil:
		return &exitError{exitInterrupted, fmt.Sprintf("interrupted; instance %s goes on: `millrace instances cancel %s` ends it", i.ID, i.ID)}
	case ctx.Err() != nil:
		return &exitError{exitTimeout, fmt.Sprintf("instance %s has not ended within %s and goes on", i.ID, timeout)}
	case err != nil:
		return err
	}
	if c.output == "table" || c.output == "wide" {
		err = c.describeStarted(c.out, i)
	} else {
		err = render(c, c.out, c.startedListing([]client.Instance{i}, true))
	}
	if err == nil && i.Status != "COMPLETED" {
		err = &exitError{code: exitFailure}
	}
	return err
}

func instanceProgress(i client.Instance) string {
	text := i.Status
	if len(i.CurrentStepIDs) > 0 {
		text += " " + strings.Join(i.CurrentStepIDs, ", ")
	}
	return text
}

func (c *cli) instancesListCommand() *cobra.Command {
	var filter client.InstanceQuery
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List instances, the youngest first",
		Long:    `List instances, the youngest first, in all statuses unless --status is given.`,
		Example: `  millrace instances list --definition LOS::loan-application-full --status WAITING,FAILED
  millrace instances list --business-key APP-1 -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosenOf("--status", filter.Statuses, client.InstanceStatuses()); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			filter.PageSize = pageOf(limit)
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := firstOf(api.Instances(ctx, filter), limit)
					if err != nil {
						return err
					}
					return render(c, w, c.startedListing(items, false))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.DefinitionID, "definition", "", "only instances of this definition")
	flags.StringVar(&filter.BusinessKey, "business-key", "", "only instances with this business key")
	flags.StringVar(&filter.Kind, "kind", "", "only workflow, or only saga")
	flags.StringSliceVar(&filter.Statuses, "status", nil, "only instances with this status (repeatable)")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(client.InstanceStatuses())) // the flag exists
	return cmd
}

// chosenOf checks values of a flag, in any case, and writes them as they are meant.
func chosenOf(flag string, values, known []string) error {
	for i, v := range values {
		if values[i] = strings.ToUpper(strings.TrimSpace(v)); !slices.Contains(known, values[i]) {
			return usagef("%s: %q is none of %s", flag, v, strings.Join(known, ", "))
		}
	}
	return nil
}

func (c *cli) startedListing(items []client.Instance, single bool) listing[client.Instance] {
	now := c.now()
	wide := c.output == "wide"
	return listing[client.Instance]{
		items: items, single: single,
		name:  func(i client.Instance) string { return i.ID },
		empty: "no instances",
		columns: []column[client.Instance]{
			{title: "ID", cell: func(i client.Instance) string { return i.ID }},
			{title: "STATUS", cell: func(i client.Instance) string { return i.Status }, paint: instanceColour},
			{title: "DEFINITION", cell: func(i client.Instance) string { return fmt.Sprintf("%s v%d", i.DefinitionID, i.DefinitionVersion) }},
			{title: "BUSINESS KEY", cell: func(i client.Instance) string { return dash(i.BusinessKey) }},
			{title: "AGE", cell: func(i client.Instance) string { return age(now, i.StartedAt) }},
			{title: "TOOK", wide: true, cell: func(i client.Instance) string {
				if i.CompletedAt == nil {
					return "-"
				}
				return span(i.CompletedAt.Sub(i.StartedAt))
			}},
			{title: "PRIORITY", wide: true, cell: func(i client.Instance) string { return fmt.Sprint(i.Priority) }},
			{title: "STEPS", cell: func(i client.Instance) string { return shorten(dash(strings.Join(i.CurrentStepIDs, ",")), wide) }},
			{title: "FAILURE", cell: func(i client.Instance) string { return shorten(dash(i.FailureReason), wide) }},
		},
	}
}

func instanceColour(i client.Instance) int {
	switch i.Status {
	case "FAILED", "NEEDS_ATTENTION":
		return red
	case "COMPLETED":
		return green
	case "SUSPENDED", "COMPENSATING", "COMPENSATED":
		return yellow
	case "WAITING":
		return blue
	default:
		return plain
	}
}

func (c *cli) instancesGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get ID",
		Aliases: []string{"show"},
		Short:   "Show one instance in full",
		Long:    `Show one instance as it is: its status, its open steps and its variables.`,
		Example: `  millrace instances get 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			i, err := api.Instance(ctx, id, 0)
			if err != nil {
				return err
			}
			if c.output == "table" || c.output == "wide" {
				return c.describeStarted(w, i)
			}
			return render(c, w, c.startedListing([]client.Instance{i}, true))
		}),
	}
}

func (c *cli) describeStarted(w io.Writer, i client.Instance) error {
	about := c.factsOf(w, "Status", instanceColour(i))
	about.line("ID", i.ID)
	about.line("Status", i.Status)
	about.line("Failure", i.FailureReason)
	about.line("Notice", i.Notice)
	about.line("Definition", fmt.Sprintf("%s, version %d", i.DefinitionID, i.DefinitionVersion))
	about.line("Business key", i.BusinessKey)
	about.line("Open steps", strings.Join(i.CurrentStepIDs, ", "))
	about.line("Variables", string(i.Variables))
	about.line("Started", c.timeText(&i.StartedAt))
	about.line("Ended", c.timeText(i.CompletedAt))
	if i.CompletedAt != nil {
		about.line("Took", span(i.CompletedAt.Sub(i.StartedAt)))
	}
	about.line("Next instance", i.NextInstanceID)
	about.line("Parent instance", i.ParentInstanceID)
	about.line("Execution", i.ExecutionID)
	about.line("User", i.User)
	about.line("Correlation id", i.CorrelationID)
	if i.Origin != nil {
		about.line("Trigger", i.Origin.Trigger)
		about.line("Message", string(i.Origin.Metadata))
	}
	if c.output == "wide" {
		about.line("Priority", fmt.Sprint(i.Priority))
		about.line("Tenant", i.Tenant)
		about.line("Version", fmt.Sprint(i.Version))
		about.line("Updated", c.timeText(i.UpdatedAt))
	}
	return about.end()
}
