package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) purgeCommand() *cobra.Command {
	var order client.PurgeOrder
	var yes, wait bool
	cmd := &cobra.Command{
		Use:   "purge --subject USER",
		Short: "Erase everything that is known of a user",
		Long: `Erase everything that is known of a user: the executions that the user asked for, and
the workflows that the user started, up to now, with their input, output, results,
history, jobs, tasks, events, views, idempotency keys and dead letters; the events
about them in the outbox; and, unless --tenant names one, events that name the user as
their subject or key. It shows what it would erase and asks first.

What has not ended is left until it ends, or cancelled with --cancel.
The servers carry the purge out; it goes on when they are restarted, and can be asked
for again. Its audit does not name the user.

Out of reach is what lies in Kafka's topics until their retention is over, what is in
backups, what others have received, and what names the user inside the data of events
of others. When topics are read again, what comes of it is erased again.`,
		Example: `  millrace purge --subject ada --dry-run
  millrace purge --subject ada --tenant acme --reason 'request 4711' --yes --wait
  millrace purge list`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if order.User == "" {
				return usagef("--subject: say whose data is to be erased")
			}
			return c.withAPI(func(api *client.Client) error { return c.purge(cmd.Context(), api, order, yes, wait) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&order.User, "subject", "", "the user whose data is to be erased")
	flags.StringVar(&order.Tenant, "tenant", "", "only in this tenant; every tenant without it")
	flags.StringVar(&order.Reason, "reason", "", "why, for the audit; it should name nobody")
	flags.BoolVar(&order.Cancel, "cancel", false, "cancel executions that have not ended")
	flags.BoolVar(&order.DryRun, "dry-run", false, "only show what would be erased")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&wait, "wait", false, "follow it until it is done, or waits for something")
	cmd.AddCommand(c.purgeListCommand(), c.purgeGetCommand(), c.purgeCancelCommand())
	return cmd
}

func (c *cli) purge(ctx context.Context, api *client.Client, order client.PurgeOrder, yes, wait bool) error {
	if order.DryRun || !yes {
		dry := order
		dry.DryRun = true
		found, err := api.StartPurge(ctx, dry)
		if err != nil {
			return err
		}
		if order.DryRun {
			return c.renderPurges(c.out, []client.Purge{found}, true)
		}
		if err := c.confirmPurge(found); err != nil {
			return err
		}
	}
	p, err := api.StartPurge(ctx, order)
	if err != nil {
		return err
	}
	if wait {
		if p, err = c.followPurge(ctx, api, p); err != nil {
			return err
		}
	} else if c.output == "table" || c.output == "wide" {
		c.notef("the purge has begun; follow it with: millrace purge get %s --watch", p.ID)
	}
	if err := c.renderPurges(c.out, []client.Purge{p}, true); err != nil {
		return err
	}
	switch {
	case wait && p.State == "WAITING":
		return &exitError{exitFailure, "the purge waits for: " + counts(p.Waiting) + "; it looks again every 10 s"}
	case wait && p.State != "DONE":
		return &exitError{code: exitFailure}
	}
	return nil
}

func (c *cli) confirmPurge(found client.Purge) error {
	fmt.Fprintf(c.err, "This erases, for good: %s\n", counts(found.Erased))
	if len(found.Waiting) > 0 {
		fmt.Fprintf(c.err, "It has to wait for: %s\n", counts(found.Waiting))
	}
	fmt.Fprint(c.err, "Go on? [y/N] ")
	line, err := bufio.NewReader(io.LimitReader(c.in, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
		return nil
	}
	if line == "" { // nobody there to answer, or Ctrl-D
		fmt.Fprintln(c.err)
	}
	return &exitError{exitFailure, "nothing was erased: answer y, or give --yes"}
}

// followPurge notes the progress of a purge until it goes on no further for now.
func (c *cli) followPurge(ctx context.Context, api *client.Client, p client.Purge) (client.Purge, error) {
	c.notef("purge %s", p.ID)
	return follow(ctx, c, p, following[client.Purge]{
		noun: "purge", id: p.ID, status: "millrace purge get " + p.ID,
		fetch:  func(ctx context.Context) (client.Purge, error) { return api.Purge(ctx, p.ID) },
		goesOn: func(p client.Purge) bool { return p.State == "RUNNING" || ending(p) },
		progress: func(p client.Purge) string {
			if p.State != "RUNNING" {
				return ""
			}
			return "erased so far: " + counts(p.Erased)
		},
	})
}

// ending says that a purge waits for nothing but what it has cancelled.
func ending(p client.Purge) bool {
	ending := p.Waiting["executions_not_ended"] + p.Waiting["workflows_not_ended"]
	other := 0
	for what := range p.Waiting {
		if what != "executions_not_ended" && what != "workflows_not_ended" {
			other++
		}
	}
	return p.State == "WAITING" && p.Cancel && ending > 0 && other == 0
}

// counts writes numbers by kind, as in "2 executions, 24 events".
func counts(of map[string]int64) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		if of[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of[kind], strings.ReplaceAll(kind, "_", " ")))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func (c *cli) renderPurges(w io.Writer, list []client.Purge, single bool) error {
	now := c.now()
	return render(c, w, listing[client.Purge]{
		items: list, single: single,
		name:  func(p client.Purge) string { return p.ID },
		empty: "no purges",
		columns: []column[client.Purge]{
			{title: "ID", cell: func(p client.Purge) string { return dash(p.ID) }},
			{title: "STATE", cell: func(p client.Purge) string {
				if p.DryRun {
					return "dry run"
				}
				return p.State
			}},
			{title: "ERASED", cell: func(p client.Purge) string { return counts(p.Erased) }},
			{title: "WAITS FOR", cell: func(p client.Purge) string { return dash(strings.TrimPrefix(counts(p.Waiting), "nothing")) }},
			{title: "AGE", cell: func(p client.Purge) string {
				if p.CreatedAt == nil {
					return "-"
				}
				return age(now, *p.CreatedAt)
			}},
			{title: "BY", cell: func(p client.Purge) string { return dash(p.Actor) }},
			{title: "REASON", cell: func(p client.Purge) string { return dash(p.Reason) }},
			{title: "TENANT", wide: true, cell: func(p client.Purge) string { return dash(p.Tenant) }},
			{title: "USER SHA-256", wide: true, cell: func(p client.Purge) string { return dash(p.UserHash) }},
		},
	})
}

func (c *cli) purgeListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List purges, the newest first",
		Long:    `List purges, the newest first: who asked for them, and what was erased.`,
		Example: `  millrace purge list -o wide`,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					list, err := firstOf(api.Purges(ctx, pageOf(limit)), limit)
					if err != nil {
						return err
					}
					return c.renderPurges(w, list, false)
				})
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

func (c *cli) purgeGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get ID",
		Aliases: []string{"show"},
		Short:   "Show how far a purge is",
		Long:    `Show how far a purge is, and what it waits for.`,
		Example: `  millrace purge get 0198c0de-0000-7000-8000-000000000001 --watch`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			p, err := api.Purge(ctx, id)
			if err != nil {
				return err
			}
			return c.renderPurges(w, []client.Purge{p}, true)
		}),
	}
}

func (c *cli) purgeCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel ID",
		Short:   "End a purge; what is erased stays so",
		Long:    `End a purge that is under way or waits. What is erased stays so.`,
		Example: `  millrace purge cancel 0198c0de-0000-7000-8000-000000000001`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				p, err := api.CancelPurge(cmd.Context(), ids[0])
				if err != nil {
					return err
				}
				return c.renderPurges(c.out, []client.Purge{p}, true)
			})
		},
	}
}
