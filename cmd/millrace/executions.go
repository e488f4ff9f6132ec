package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) executionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "executions",
		Aliases: []string{"execution", "exec"},
		Short:   "Look at executions, follow them, stop them",
		Long:    `Look at executions, their history and their output; follow them live; stop them.`,
		Example: `  millrace executions list --state RUNNING --watch
  millrace executions get 0198c0de-0000-7000-8000-000000000001
  millrace exec output 0198c0de-0000-7000-8000-000000000001`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		c.listCommand(), c.getCommand(), c.eventsCommand(), c.outputCommand(), c.resultCommand(),
		c.cancelCommand(), c.prioritizeCommand(), c.rerunCommand(), c.watchCommand(),
	)
	return cmd
}

// executionListing is how executions are printed.
func (c *cli) executionListing(items []client.Execution, single bool) listing[client.Execution] {
	now := c.now()
	return listing[client.Execution]{
		items: items, single: single,
		name:  func(e client.Execution) string { return e.ID },
		empty: "no executions",
		columns: []column[client.Execution]{
			{title: "ID", cell: func(e client.Execution) string { return e.ID }},
			{title: "STATE", cell: func(e client.Execution) string { return e.State }, paint: stateColour},
			{title: "EXECUTOR", cell: func(e client.Execution) string { return e.Executor }},
			{title: "WHAT", cell: func(e client.Execution) string { return shorten(what(e), c.output == "wide") }},
			{title: "ATTEMPT", cell: func(e client.Execution) string { return fmt.Sprint(e.Attempt) }},
			{title: "AGE", cell: func(e client.Execution) string { return age(now, e.RequestedAt) }},
			{title: "RAN", cell: ran(now)},
			{title: "USER", wide: true, cell: func(e client.Execution) string { return cmp.Or(e.User, "-") }},
			{title: "PRIORITY", wide: true, cell: func(e client.Execution) string { return fmt.Sprint(e.Priority) }},
			{title: "CLASS", wide: true, cell: func(e client.Execution) string { return cmp.Or(e.ResourceClass, "-") }},
			{title: "WORKER", wide: true, cell: func(e client.Execution) string { return cmp.Or(e.Worker, "-") }},
			{title: "LABELS", wide: true, cell: func(e client.Execution) string { return labelText(e.Labels) }},
			{title: "RESULT", wide: true, cell: func(e client.Execution) string { return cmp.Or(resultText(e.Result), "-") }},
		},
	}
}

// ran says how long an execution ran, or has been running.
func ran(now time.Time) func(client.Execution) string {
	return func(e client.Execution) string {
		switch {
		case e.StartedAt == nil:
			return "-"
		case e.FinishedAt != nil:
			return span(max(e.FinishedAt.Sub(*e.StartedAt), 0))
		default:
			return age(now, *e.StartedAt)
		}
	}
}

// elapsed says how long an execution took from the request to its end.
func elapsed(e client.Execution) string {
	if e.FinishedAt == nil {
		return "-"
	}
	return span(max(e.FinishedAt.Sub(e.RequestedAt), 0))
}

func stateColour(e client.Execution) int {
	switch e.State {
	case client.Completed:
		return green
	case client.Failed, client.TimedOut, client.Rejected, client.Quarantined:
		return red
	case client.Cancelled:
		return yellow
	case client.Running:
		return blue
	default:
		return plain
	}
}

// what says in a few words what an execution runs.
func what(e client.Execution) string {
	var spec struct {
		Command []string `json:"command"`
		Script  string   `json:"script"`
		Image   string   `json:"image"`
		Name    string   `json:"name"`
	}
	// Lists bring no spec, and one of an executor that this version does not know
	// has neither field: then the name has to do.
	_ = json.Unmarshal(e.Spec, &spec)
	words := slices.Clone(spec.Command)
	if len(words) > 0 {
		words[0] = path.Base(words[0])
	}
	if spec.Script != "" {
		words = append(words, "script")
	}
	return cmp.Or(strings.Join(words, " "), spec.Name, spec.Image, e.Name, "-")
}

// shorten cuts a text for a table that is not wide.
func shorten(text string, wide bool) string {
	const most = 40
	if runes := []rune(text); !wide && len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return "-"
	}
	list := make([]string, 0, len(labels))
	for name, value := range labels {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// retryAfter is how long after its rejection an execution may be accepted, rounded up
// to a second, since one who comes too early is rejected again.
func retryAfter(e client.Execution) (time.Duration, bool) {
	if e.Result == nil || e.Result.RetryAfter == "" {
		return 0, false
	}
	wait, err := time.ParseDuration(e.Result.RetryAfter)
	return (wait + time.Second - 1).Truncate(time.Second), err == nil && wait > 0
}

// resultText says how an execution ended, if there is more to say than its state.
func resultText(r *client.Result) string {
	if r == nil {
		return ""
	}
	text := cmp.Or(r.Message, strings.ReplaceAll(r.Reason, "_", " "))
	if r.Message == "" && r.Reason == "exit_code" {
		text = "" // the code itself says it
	}
	if r.ExitCode != nil && *r.ExitCode != 0 && !strings.Contains(text, fmt.Sprint(*r.ExitCode)) {
		text = strings.TrimPrefix(text+", exit code "+fmt.Sprint(*r.ExitCode), ", ")
	}
	return text
}
