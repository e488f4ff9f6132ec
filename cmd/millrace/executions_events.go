package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/topics"
)

func (c *cli) eventsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "events ID",
		Short: "Show the history of an execution",
		Long: `Show every event of an execution in order. To follow one live there is
"millrace executions watch".`,
		Example: `  millrace executions events 0198c0de-0000-7000-8000-000000000001
  millrace executions events 0198c0de-0000-7000-8000-000000000001 -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			events, err := api.Events(ctx, id)
			if err != nil {
				return err
			}
			return render(c, w, c.eventListing(events))
		}),
	}
}

func (c *cli) eventListing(events []client.Event) listing[client.Event] {
	now := c.now()
	return listing[client.Event]{
		items: events,
		name:  func(e client.Event) string { return e.ID },
		empty: "no events",
		columns: []column[client.Event]{
			{title: "SEQ", cell: func(e client.Event) string { return cmp.Or(strings.TrimPrefix(fmt.Sprint(e.Sequence), "0"), "-") }},
			{title: "AGE", cell: func(e client.Event) string { return age(now, e.Time) }},
			{title: "EVENT", cell: func(e client.Event) string { return shortType(e.Type) }},
			{title: "DETAIL", cell: func(e client.Event) string { return shorten(eventDetail(e), c.output == "wide") }},
			{title: "EVENT ID", wide: true, cell: func(e client.Event) string { return e.ID }},
		},
	}
}

// shortType takes the parts off a type that all of them share.
func shortType(kind string) string {
	if topics.IsLifecycle(kind) {
		return strings.TrimSuffix(strings.TrimPrefix(kind, "io.serverlessworkflow."), ".v1")
	}
	short := strings.TrimPrefix(strings.TrimPrefix(kind, "millrace."), "execution.")
	if short == kind {
		return kind
	}
	return strings.TrimSuffix(short, ".v1")
}

// eventDetail says what an event adds to its type.
func eventDetail(e client.Event) string {
	if told, ok := lifecycleOf(e); ok {
		return lifecycleDetail(told)
	}
	var data struct {
		Attempt          int    `json:"attempt"`
		Worker           string `json:"worker"`
		By               string `json:"by"`
		Reason           string `json:"reason"`
		Message          string `json:"message"`
		Cause            string `json:"cause"`
		Stream           string `json:"stream"`
		Size             int    `json:"size"`
		WaitedMillis     int64  `json:"waited_millis"`
		Priority         int    `json:"priority"`
		PreviousPriority int    `json:"previous_priority"`
		RetryAfter       string `json:"retry_after"`
		PodID            string `json:"pod_id"`
		Name             string `json:"name"`
		Node             string `json:"node"`
		Failure          struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"failure"`
	}
	// An event of another shape has no detail that is known here.
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	var parts []string
	if data.Attempt > 0 {
		parts = append(parts, fmt.Sprintf("attempt %d", data.Attempt))
	}
	if data.PodID != "" {
		parts = append(parts, data.Name)
	}
	if on := cmp.Or(data.Worker, data.Node); on != "" {
		parts = append(parts, "on "+on)
	}
	if e.Type == client.EventOutput {
		parts = append(parts, fmt.Sprintf("%d bytes of %s", data.Size, data.Stream))
	}
	if data.PreviousPriority > 0 {
		parts = append(parts, fmt.Sprintf("priority %d instead of %d", data.Priority, data.PreviousPriority))
	}
	if data.WaitedMillis > 0 {
		parts = append(parts, "after "+span(time.Duration(data.WaitedMillis)*time.Millisecond))
	}
	why := cmp.Or(data.Failure.Message, data.Message, data.Failure.Reason, data.Reason, data.Cause)
	if why != "" {
		parts = append(parts, strings.ReplaceAll(why, "_", " "))
	}
	if data.By != "" {
		parts = append(parts, "by "+data.By)
	}
	if data.RetryAfter != "" {
		parts = append(parts, "ask again in "+data.RetryAfter)
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}
