package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "limits",
		Aliases: []string{"limit"},
		Short:   "See which limits hold, and how the keys under them stand",
		Long: `See which limits of rate and concurrency hold, as the coordinator that started last has
them, and how the keys under them stand. Limits are configured: coordinator.limits.`,
		Example: `  millrace limits list
  millrace limits get team
  millrace limits get per-user --key acme/ada
  millrace limits reset per-user acme/ada --reason 'the import is over'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.limitsListCommand(), c.limitsGetCommand(), c.limitsResetCommand())
	return cmd
}

func (c *cli) limitsListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the limits that hold",
		Long: `List the limits that hold, by name. KEYS is how many keys have spent tokens or running
executions, AGE since when a limit is as it is.`,
		Example: `  millrace limits list
  millrace limits list -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				items, err := firstOf(api.Limits(ctx, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				return render(c, w, c.limitListing(items))
			})
		},
	}
	addLimit(cmd, &limit)
	return cmd
}

func addLimit(cmd *cobra.Command, limit *int) {
	cmd.Flags().IntVar(limit, "limit", 50, "how many to list at most; 0 lists all")
}

// listing runs show, again and again with --watch.
func (c *cli) listing(ctx context.Context, limit int, show func(context.Context, *client.Client, io.Writer) error) error {
	if limit < 0 {
		return usagef("--limit: want 0 or more, not %d", limit)
	}
	return c.withAPI(func(api *client.Client) error {
		return c.repeat(ctx, func(ctx context.Context, w io.Writer) error { return show(ctx, api, w) })
	})
}

func (c *cli) limitListing(items []client.Limit) listing[client.Limit] {
	type limit = client.Limit
	now, wide := c.now(), c.output == "wide"
	return listing[limit]{
		items: items,
		name:  func(l limit) string { return l.Name },
		empty: "no limits: they are configured in coordinator.limits",
		columns: []column[limit]{
			{title: "NAME", cell: func(l limit) string { return l.Name }},
			{title: "PER", cell: func(l limit) string { return shorten(perText(l), wide) }},
			{title: "RATE", cell: func(l limit) string { return dash(l.Rate) }},
			{title: "BURST", cell: func(l limit) string { return amountText(l.Burst) }},
			{title: "CONCURRENCY", cell: func(l limit) string { return amountText(l.Concurrency) }},
			{title: "ACTION", cell: func(l limit) string { return l.Action }},
			{title: "KEYS", cell: keysText},
			{title: "AGE", cell: func(l limit) string { return age(now, l.Since) }},
			{title: "WHEN", wide: true, cell: func(l limit) string { return dash(l.When) }},
			{title: "BEFORE", wide: true, cell: func(l limit) string { return dash(l.Previous) }},
			{title: "DECLARED BY", wide: true, cell: func(l limit) string { return l.DeclaredBy }},
		},
	}
}

// perText is what a limit counts by: the expression, where it is one.
func perText(l client.Limit) string { return cmp.Or(l.Key, l.Per) }

// amountText shows a number of which 0 stands for none.
func amountText(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// keysCounted is how far the server counts.
const keysCounted = 10_000

func keysText(l client.Limit) string {
	if l.KeysInUse >= keysCounted {
		return fmt.Sprintf("%d+", keysCounted)
	}
	return fmt.Sprint(l.KeysInUse)
}

func (c *cli) limitsGetCommand() *cobra.Command {
	var key string
	var limit int
	cmd := &cobra.Command{
		Use:     "get NAME",
		Aliases: []string{"show"},
		Short:   "Show a limit and the keys that are in use",
		Long: `Show a limit and the keys that are in use: how many TOKENS each has now, in how long
there is one more, and how many executions of it are scheduled or running. --key shows
one key.`,
		Example: `  millrace limits get team
  millrace limits get per-user --key acme/ada --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				l, err := api.Limit(ctx, names[0])
				if err != nil {
					return err
				}
				keys, err := firstOf(api.LimitKeys(ctx, l.Name, key, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				if key != "" && len(keys) == 0 {
					return &notFoundError{fmt.Sprintf("limit %s has no key %q: nothing was ever decided on it", l.Name, key)}
				}
				return c.printLimit(w, l, keys)
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "this key only, in use or not")
	addLimit(cmd, &limit)
	return cmd
}

// limitDocument is a limit with its keys, as JSON.
type limitDocument struct {
	client.Limit
	Keys []client.LimitKey `json:"keys"`
}

// printLimit prints the whole as a document, and the limit in lines over a table of
// its keys otherwise.
func (c *cli) printLimit(w io.Writer, l client.Limit, keys []client.LimitKey) error {
	switch c.output {
	case "json", "yaml":
		if keys == nil {
			keys = []client.LimitKey{}
		}
		return c.document(w, limitDocument{l, keys})
	case "name":
		return render(c, w, c.limitKeyListing(keys))
	}
	about := c.factsOf(w, "", 0)
	for _, line := range [][2]string{
		{"Name", l.Name}, {"Per", perText(l)}, {"When", l.When}, {"Rate", l.Rate}, {"Burst", amountText(l.Burst)},
		{"Concurrency", amountText(l.Concurrency)}, {"Action", l.Action}, {"Since", c.timeText(&l.Since)},
		{"Before", l.Previous}, {"Declared by", l.DeclaredBy}, {"Keys in use", keysText(l)},
	} {
		about.known(line[0], line[1])
	}
	if err := about.end(); err != nil || len(keys) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return render(c, w, c.limitKeyListing(keys))
}

func (c *cli) limitKeyListing(keys []client.LimitKey) listing[client.LimitKey] {
	type key = client.LimitKey
	now := c.now()
	return listing[key]{
		items: keys,
		name:  func(k key) string { return k.Key },
		columns: []column[key]{
			{title: "KEY", cell: func(k key) string { return k.Key }},
			{title: "TOKENS", cell: func(k key) string {
				if k.Tokens == nil {
					return "-"
				}
				return fmt.Sprint(*k.Tokens)
			}},
			{title: "NEXT", cell: func(k key) string {
				if k.NextTokenAt == nil {
					return "-"
				}
				return span(max(k.NextTokenAt.Sub(now), 0))
			}},
			{title: "IN USE", cell: func(k key) string { return fmt.Sprint(k.InUse) }},
			{title: "AGE", cell: func(k key) string { return age(now, k.UpdatedAt) }},
		},
	}
}

func (c *cli) limitsResetCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "reset NAME KEY",
		Short: "Fill the bucket of a key",
		Long: `Fill the bucket of a key of a limit: the next executions with that key find all its
tokens. What runs under the key is still counted. The server logs who did it, and why.`,
		Example: `  millrace limits reset per-user acme/ada --reason 'the import is over'`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				k, err := api.ResetLimit(cmd.Context(), names[0], names[1], reason)
				if err != nil {
					return err
				}
				l := c.limitKeyListing([]client.LimitKey{k})
				l.single = true
				return render(c, c.out, l)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return cmd
}
