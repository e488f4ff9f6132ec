package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// reasonFlag is the flag that every action has.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the audit")
}

const reasonRequired = "--reason is required: it is kept for those who ask later"

// printConsumerActions prints what actions came to.
func (c *cli) printConsumerActions(single bool, items ...client.ConsumerAction) error {
	type action = client.ConsumerAction
	for _, a := range items {
		if a.Outcome == "PENDING" {
			c.notef("the owner of the partition has not confirmed it yet: see millrace consumers get %s", a.Consumer)
			break
		}
	}
	return render(c, c.out, listing[action]{
		items: items, single: single,
		name: func(a action) string { return a.Consumer },
		columns: []column[action]{
			{title: "ACTION", cell: func(a action) string { return a.Action }},
			{title: "CONSUMER", cell: func(a action) string { return a.Consumer }},
			{title: "PARTITION", cell: func(a action) string {
				if a.Partition == nil {
					return "all"
				}
				return fmt.Sprint(*a.Partition)
			}},
			{title: "OFFSET", cell: func(a action) string { return number(a.Offset) }},
			{title: "OUTCOME", cell: func(a action) string { return a.Outcome }},
		},
	})
}

func (c *cli) consumersPauseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Hand a consumer nothing more, in any process",
		Long: `Hand a consumer nothing more, in any process, until it is resumed. What is in flight
ends; its lag grows. It holds over restarts.`,
		Example: `  millrace consumers pause audit --reason 'its target is being moved'`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				done, err := api.PauseConsumer(cmd.Context(), names[0], reason)
				if err != nil {
					return err
				}
				return c.printConsumerActions(true, done)
			})
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) consumersResumeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "End the pause of a consumer",
		Long: `End the pause of a consumer: every process hands it records again, from where it was.
A partition that was stalled before is tried again at once.`,
		Example: `  millrace consumers resume audit`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				done, err := api.ResumeConsumer(cmd.Context(), names[0], reason)
				if err != nil {
					return err
				}
				return c.printConsumerActions(true, done)
			})
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) consumersRetryCommand() *cobra.Command {
	var partition int32
	var all bool
	var reason string
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "Try a stalled partition again now",
		Long: `Try a stalled partition again now, without waiting for its next try, or with --all
every partition of the consumer that is stalled.`,
		Example: `  millrace consumers retry executions-view --partition 3
  millrace consumers retry executions-view --all --reason 'the disk has room again'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if all == cmd.Flags().Changed("partition") {
				return usagef("give --partition or --all, and not both: see %s --help", cmd.CommandPath())
			}
			return c.withAPI(func(api *client.Client) error {
				if !all {
					done, err := api.RetryConsumer(cmd.Context(), names[0], partition, reason)
					if err != nil {
						return err
					}
					return c.printConsumerActions(true, done)
				}
				return c.retryStalled(cmd.Context(), api, names[0], reason)
			})
		},
	}
	cmd.Flags().Int32Var(&partition, "partition", 0, "the partition")
	cmd.Flags().BoolVar(&all, "all", false, "all partitions that are stalled")
	reasonFlag(cmd, &reason)
	return cmd
}

// retryStalled tries every stalled partition of a consumer. One that cannot be tried
// does not keep the others from it.
func (c *cli) retryStalled(ctx context.Context, api *client.Client, name, reason string) error {
	s, err := api.Consumer(ctx, name)
	if err != nil {
		return err
	}
	var done []client.ConsumerAction
	var errs []error
	for _, p := range s.Partitions {
		if p.State != "stalled" {
			continue
		}
		a, err := api.RetryConsumer(ctx, name, p.Partition, reason)
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", p.Partition, err))
			continue
		}
		done = append(done, a)
	}
	if len(done)+len(errs) == 0 {
		c.notef("no partition is stalled")
	}
	if len(done) > 0 || len(errs) == 0 {
		errs = append(errs, c.printConsumerActions(false, done...))
	}
	return errors.Join(errs...)
}

func (c *cli) consumersDeadLetterCommand() *cobra.Command {
	var partition int32
	var offset int64
	var reason string
	cmd := &cobra.Command{
		Use:   "dead-letter NAME",
		Short: "Give up the record at which a partition is stalled",
		Long: `Give up the record at which a partition is stalled: it becomes a dead letter with the
reason, which is required, and the partition goes on behind it. It is about that
record and no other: if the partition is not stalled at the offset any more, nothing
happens. See millrace dlq for what can be done with dead letters.`,
		Example: `  millrace consumers dead-letter audit --partition 3 --offset 4711 --reason 'the account is closed; billing knows'`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if !cmd.Flags().Changed("partition") || !cmd.Flags().Changed("offset") {
				return usagef("--partition and --offset are required: see millrace consumers get %s", names[0])
			}
			if reason == "" {
				return usagef(reasonRequired)
			}
			return c.withAPI(func(api *client.Client) error {
				done, err := api.DeadLetterConsumerRecord(cmd.Context(), names[0], partition, offset, reason)
				if err != nil {
					return err
				}
				return c.printConsumerActions(true, done)
			})
		},
	}
	cmd.Flags().Int32Var(&partition, "partition", 0, "the partition")
	cmd.Flags().Int64Var(&offset, "offset", 0, "the offset at which it is stalled")
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) consumersSeekCommand() *cobra.Command {
	var seek client.ConsumerSeek
	var partition int32
	var to string
	cmd := &cobra.Command{
		Use:   "seek NAME",
		Short: "Move the position of a consumer",
		Long: `Move the position of a consumer to an offset, the beginning, the end, or the first
record at or after a time. Back means that records are handled again; forwards, that
some never are. --dry-run says from where to where, and what that means. A reason is
required.`,
		Example: `  millrace consumers seek audit --all-partitions --to beginning --dry-run
  millrace consumers seek audit --partition 3 --to 4712 --reason 'what lies before was handled by hand'
  millrace consumers seek audit --all-partitions --to 2026-03-01T12:00:00Z --reason 'its target was restored'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if seek.AllPartitions == cmd.Flags().Changed("partition") {
				return usagef("give --partition or --all-partitions, and not both: see %s --help", cmd.CommandPath())
			}
			if !seek.AllPartitions {
				seek.Partition = &partition
			}
			if err := seekTarget(&seek, to); err != nil {
				return err
			}
			if seek.Reason == "" && !seek.DryRun {
				return usagef(reasonRequired)
			}
			return c.withAPI(func(api *client.Client) error {
				done, err := api.SeekConsumer(cmd.Context(), names[0], seek)
				if err != nil {
					return err
				}
				return c.printSought(done)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "where to: an offset, beginning, end, or a time (RFC 3339)")
	flags.Int32Var(&partition, "partition", 0, "the partition")
	flags.BoolVar(&seek.AllPartitions, "all-partitions", false, "all partitions")
	flags.BoolVar(&seek.DryRun, "dry-run", false, "say what would happen only")
	reasonFlag(cmd, &seek.Reason)
	return cmd
}

// seekTarget reads what --to says.
func seekTarget(seek *client.ConsumerSeek, to string) error {
	if to == "beginning" || to == "end" {
		seek.To = to
		return nil
	}
	if offset, err := strconv.ParseInt(to, 10, 64); err == nil && offset >= 0 {
		if seek.AllPartitions {
			return usagef("--to: an offset means something in one partition only")
		}
		seek.Offset = &offset
		return nil
	}
	at, err := time.Parse(time.RFC3339, to)
	if err != nil {
		return usagef("--to: want an offset, beginning, end or a time such as 2026-03-01T12:00:00Z, not %q", to)
	}
	seek.Time = &at
	return nil
}

// printSought prints a seek with what it means. A partition that did not move makes
// it a failure.
func (c *cli) printSought(s client.ConsumerSought) error {
	for _, warning := range s.Warnings {
		fmt.Fprintln(c.err, "millrace: warning: "+warning)
	}
	if s.DryRun {
		c.notef("nothing was moved: this was a dry run")
	}
	var failed error
	for _, m := range s.Moves {
		if m.Outcome == "REFUSED" || m.Outcome == "EXPIRED" {
			failed = errors.Join(failed, fmt.Errorf("partition %d did not move: %s", m.Partition, dash(m.Detail)))
		}
	}
	if c.output == "json" || c.output == "yaml" {
		return errors.Join(c.document(c.out, s), failed)
	}
	type move = client.ConsumerMove
	return errors.Join(render(c, c.out, listing[move]{
		items: s.Moves,
		name:  func(m move) string { return fmt.Sprint(m.Partition) },
		columns: []column[move]{
			{title: "PARTITION", cell: func(m move) string { return fmt.Sprint(m.Partition) }},
			{title: "FROM", cell: func(m move) string { return number(m.From) }},
			{title: "TO", cell: func(m move) string { return fmt.Sprint(m.To) }},
			{title: "OUTCOME", cell: func(m move) string {
				if s.DryRun {
					return "(dry run)"
				}
				return dash(m.Outcome)
			}},
		},
	}), failed)
}
