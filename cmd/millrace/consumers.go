package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) consumersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "consumers",
		Aliases: []string{"consumer"},
		Short:   "See how consumers are doing, and help those that do not go on",
		Long: `See how every consumer and partition of the installation is doing, whichever process
owns it, and help those that do not go on: try again, give one record up, move the
position, pause and resume. What is done is kept in the table consumer_actions.`,
		Example: `  millrace consumers list
  millrace consumers get executions-view
  millrace consumers retry executions-view --partition 3
  millrace consumers pause audit --reason 'its target is being moved'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.consumersListCommand(), c.consumersGetCommand(), c.consumersPauseCommand(), c.consumersResumeCommand(),
		c.consumersRetryCommand(), c.consumersDeadLetterCommand(), c.consumersSeekCommand())
	return cmd
}

func (c *cli) consumersListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List consumers with their state and lag",
		Long: `List consumers. STATE is the worst of their partitions: offset_problem and stalled ones
need somebody, unowned and unreported ones a process, paused ones a resume; running and
idle ones are well.`,
		Example: `  millrace consumers list
  millrace consumers list --watch -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := api.Consumers(ctx)
					if err != nil {
						return err
					}
					for _, item := range items {
						if item.KafkaError != "" {
							c.notef("lags are not known: %s", item.KafkaError)
							break
						}
					}
					return render(c, w, c.consumerListing(items))
				})
			})
		},
	}
}

func (c *cli) consumerListing(items []client.Consumer) listing[client.Consumer] {
	type consumer = client.Consumer
	return listing[consumer]{
		items: items,
		name:  func(s consumer) string { return s.Name },
		empty: "no consumer has run here yet",
		columns: []column[consumer]{
			{title: "NAME", cell: func(s consumer) string { return s.Name }},
			{title: "STATE", cell: func(s consumer) string { return s.State }, paint: func(s consumer) int { return consumerColour(s.State) }},
			{title: "PARTITIONS", cell: func(s consumer) string { return fmt.Sprint(len(s.Partitions)) }},
			{title: "STALLED", cell: func(s consumer) string { return fmt.Sprint(countStates(s, "stalled", "offset_problem")) }},
			{title: "UNOWNED", cell: func(s consumer) string { return fmt.Sprint(countStates(s, "unowned", "unreported")) }},
			{title: "LAG", cell: func(s consumer) string { return number(s.Lag) }},
			{title: "PAUSED", cell: func(s consumer) string { return pauseText(s.Paused, c.output == "wide") }},
			{title: "TOPIC", wide: true, cell: func(s consumer) string { return s.Topic }},
			{title: "GROUP", wide: true, cell: func(s consumer) string { return s.Group }},
			{title: "KIND", wide: true, cell: func(s consumer) string { return s.Kind }},
		},
	}
}

func countStates(s client.Consumer, states ...string) (n int) {
	for _, p := range s.Partitions {
		for _, state := range states {
			if p.State == state {
				n++
			}
		}
	}
	return n
}

func consumerColour(state string) int {
	switch state {
	case "offset_problem", "stalled", "unowned":
		return red
	case "unreported", "paused":
		return yellow
	default:
		return green
	}
}

// number shows what may not be known.
func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func pauseText(p *client.ConsumerPause, wide bool) string {
	switch {
	case p == nil:
		return "-"
	case p.Reason == "":
		return "by " + p.By
	default:
		return "by " + p.By + ": " + shorten(p.Reason, wide)
	}
}

func (c *cli) consumersGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get NAME",
		Aliases: []string{"show"},
		Short:   "Show the partitions of a consumer",
		Long: `Show the partitions of a consumer: who owns each, how far it has come, and of one that
does not go on why, at which record, for how long, and when it is tried again.`,
		Example: `  millrace consumers get executions-view
  millrace consumers get executions-view -o wide --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					item, err := api.Consumer(ctx, names[0])
					if err != nil {
						return err
					}
					return c.printConsumer(w, item)
				})
			})
		},
	}
}

// printConsumer prints the whole as a document, and a row per partition as a table.
func (c *cli) printConsumer(w io.Writer, s client.Consumer) error {
	switch c.output {
	case "json", "yaml":
		return c.document(w, s)
	case "name":
		_, err := fmt.Fprintln(w, s.Name)
		return err
	}
	if s.Paused != nil {
		c.notef("paused %s", pauseText(s.Paused, true))
	}
	if s.KafkaError != "" {
		c.notef("committed offsets, ends and lags are not known: %s", s.KafkaError)
	}
	return render(c, w, c.partitionListing(s.Partitions))
}

func (c *cli) partitionListing(items []client.ConsumerPartition) listing[client.ConsumerPartition] {
	type partition = client.ConsumerPartition
	now, wide := c.now(), c.output == "wide"
	return listing[partition]{
		items: items,
		empty: "the topic has no partitions",
		columns: []column[partition]{
			{title: "PARTITION", cell: func(p partition) string { return fmt.Sprint(p.Partition) }},
			{title: "STATE", cell: func(p partition) string { return p.State }, paint: func(p partition) int { return consumerColour(p.State) }},
			{title: "POSITION", cell: func(p partition) string { return number(p.Position) }},
			{title: "COMMITTED", cell: func(p partition) string { return number(p.Committed) }},
			{title: "END", cell: func(p partition) string { return number(p.End) }},
			{title: "LAG", cell: func(p partition) string { return number(p.Lag) }},
			{title: "BLOCKED", cell: func(p partition) string {
				if p.Blocked == nil {
					return "-"
				}
				return fmt.Sprint(p.Blocked.Offset)
			}},
			{title: "FOR", cell: func(p partition) string {
				if p.StalledSince == nil {
					return "-"
				}
				return age(now, *p.StalledSince)
			}},
			{title: "TRIES", cell: func(p partition) string { return fmt.Sprint(p.Tries) }},
			{title: "NEXT", cell: func(p partition) string {
				if p.NextTryAt == nil {
					return "-"
				}
				return span(max(p.NextTryAt.Sub(now), 0))
			}},
			{title: "CAUSE", cell: func(p partition) string { return causeText(p, wide) }},
			{title: "OWNER", wide: true, cell: ownerText},
			{title: "EPOCH", wide: true, cell: func(p partition) string { return fmt.Sprint(p.Epoch) }},
			{title: "KEY", wide: true, cell: func(p partition) string {
				switch {
				case p.Blocked == nil || p.Blocked.Key == nil && p.Blocked.KeyBytes == nil:
					return "-"
				case p.Blocked.Key != nil:
					return *p.Blocked.Key
				default:
					return "base64:" + base64.StdEncoding.EncodeToString(p.Blocked.KeyBytes)
				}
			}},
		},
	}
}

func causeText(p client.ConsumerPartition, wide bool) string {
	switch {
	case p.Cause == nil:
		return dash(shorten(p.Notice, wide))
	case p.Cause.Code != "":
		return p.Cause.Code + ": " + shorten(p.Cause.Error, wide)
	default:
		return p.Cause.Class + ": " + shorten(p.Cause.Error, wide)
	}
}

func ownerText(p client.ConsumerPartition) string {
	switch {
	case p.Owner == nil:
		return "-"
	case p.Owner.Stale:
		return p.Owner.Instance + " (silent)"
	default:
		return p.Owner.Instance
	}
}
