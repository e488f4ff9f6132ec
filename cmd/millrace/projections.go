package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) projectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "projections",
		Aliases: []string{"projection"},
		Short:   "List, verify and rebuild the read models",
		Long: `A projection builds tables for reading from the events of a topic. They can be
compared with the history (verify), and built from it anew (rebuild) while everything
goes on: after a declaration has changed, or when the tables were damaged.`,
		Example: `  millrace projections list
  millrace projections verify data-index
  millrace projections rebuild data-index --keep-old 24h
  millrace projections rebuilds data-index`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.projectionsListCommand(), c.projectionsRebuildCommand(), c.projectionsVerifyCommand(),
		c.projectionsRebuildsCommand(), c.projectionsStatusCommand(), c.projectionsDifferencesCommand(),
		c.rebuildControl("pause", "Let a rebuild wait"),
		c.rebuildControl("resume", "Let a rebuild go on that was paused"),
		c.rebuildControl("cancel", "End a rebuild; the tables are as they were, and nothing else is left"))
	return cmd
}

func (c *cli) projectionsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List projections: tables, rows, lag, last rebuild",
		Long: `List projections with their tables, about how many rows these have, how far the
consumer is behind its topic, and the last rebuild. A rebuild is advised where an upgrade
has changed the declaration since the rows were built.`,
		Example: `  millrace projections list -o wide`,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := api.Projections(ctx)
					if err != nil {
						return err
					}
					return render(c, w, c.projectionListing(items))
				})
			})
		},
	}
}

func (c *cli) projectionListing(items []client.Projection) listing[client.Projection] {
	now := c.now()
	return listing[client.Projection]{
		items: items,
		name:  func(p client.Projection) string { return p.Name },
		empty: "no projections",
		columns: []column[client.Projection]{
			{title: "NAME", cell: func(p client.Projection) string { return p.Name }},
			{title: "TOPIC", cell: func(p client.Projection) string { return p.Topic }},
			{title: "TABLES", cell: func(p client.Projection) string {
				names := make([]string, len(p.Tables))
				for i, t := range p.Tables {
					names[i] = t.Name
				}
				return strings.Join(names, ",")
			}},
			{title: "ROWS", cell: func(p client.Projection) string {
				var n int64
				for _, t := range p.Tables {
					n += t.Rows
				}
				return fmt.Sprint(n)
			}},
			{title: "SIZE", wide: true, cell: func(p client.Projection) string {
				var n int64
				for _, t := range p.Tables {
					n += t.Bytes
				}
				return megabytes(n)
			}},
			{title: "LAG", cell: func(p client.Projection) string {
				if p.Lag == nil {
					return "-"
				}
				return fmt.Sprint(*p.Lag)
			}},
			{title: "VERSION", cell: func(p client.Projection) string {
				if p.RebuildAdvised {
					return p.BuiltVersion + " -> " + p.Version + ": rebuild advised"
				}
				return p.Version
			}, paint: func(p client.Projection) int {
				if p.RebuildAdvised {
					return yellow
				}
				return plain
			}},
			{title: "LAST", cell: func(p client.Projection) string {
				r := p.LastRebuild
				if r == nil {
					return "-"
				}
				return fmt.Sprintf("%s %s %s ago", r.Mode, r.State, age(now, r.CreatedAt))
			}},
		},
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func (c *cli) projectionsRebuildsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "rebuilds PROJECTION",
		Short:   "List rebuilds and comparisons of a projection, the newest first",
		Long:    `List rebuilds and comparisons of a projection, the newest first.`,
		Example: `  millrace projections rebuilds data-index`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if limit < 1 || limit > 1000 {
				return usagef("--limit: want 1 to 1000, not %d", limit)
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := api.Rebuilds(ctx, names[0], limit)
					if err != nil {
						return err
					}
					return render(c, w, c.rebuildListing(items, false))
				})
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many to list at most")
	return cmd
}

func (c *cli) projectionsStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status PROJECTION [ID]",
		Short: "Show how far a rebuild is; without an id, the last one",
		Long: `Show how far a rebuild or a comparison is and what came of it. Without an id, the last
one of the projection is shown.`,
		Example: `  millrace projections status data-index --watch`,
		Args:    args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					r, err := oneRebuild(ctx, api, names)
					if err != nil {
						return err
					}
					if c.output == "table" || c.output == "wide" {
						return c.describeRebuild(w, r)
					}
					return render(c, w, c.rebuildListing([]client.Rebuild{r}, true))
				})
			})
		},
	}
}

// oneRebuild returns the rebuild that is named, or the last one of the projection.
func oneRebuild(ctx context.Context, api *client.Client, names []string) (client.Rebuild, error) {
	if len(names) == 2 {
		return api.Rebuild(ctx, names[0], names[1])
	}
	last, err := api.Rebuilds(ctx, names[0], 1)
	if err != nil {
		return client.Rebuild{}, err
	}
	if len(last) == 0 {
		return client.Rebuild{}, fmt.Errorf("projection %s was never rebuilt or verified", names[0])
	}
	return last[0], nil
}

func (c *cli) projectionsDifferencesCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "differences PROJECTION [ID]",
		Short: "List the rows in which tables and history differed",
		Long: `List the rows in which tables and history differed, when they were compared by verify
or by a rebuild; without an id, the last one. The first 1000 are listed, all are counted.`,
		Example: `  millrace projections differences data-index -o json`,
		Args:    args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				r, err := oneRebuild(cmd.Context(), api, names)
				if err != nil {
					return err
				}
				items, err := firstOf(api.RebuildDifferences(cmd.Context(), r.Projection, r.ID, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				return render(c, c.out, c.differenceListing(items))
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

func (c *cli) differenceListing(items []client.Difference) listing[client.Difference] {
	return listing[client.Difference]{
		items: items,
		name:  func(d client.Difference) string { return d.Table + " " + string(d.Key) },
		empty: "no differences",
		columns: []column[client.Difference]{
			{title: "TABLE", cell: func(d client.Difference) string { return d.Table }},
			{title: "KIND", cell: func(d client.Difference) string { return d.Kind }},
			{title: "KEY", cell: func(d client.Difference) string { return string(d.Key) }},
			{title: "COLUMNS", cell: func(d client.Difference) string {
				if d.Kind != "different" {
					return "-"
				}
				return shorten(string(d.Columns), c.output == "wide")
			}},
		},
	}
}

// rebuildControl is one of the commands that change the state of a rebuild.
func (c *cli) rebuildControl(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " PROJECTION [ID]",
		Short:   short,
		Long:    short + ".\nWithout an id, the last one of the projection is meant.",
		Example: "  millrace projections " + verb + " data-index",
		Args:    args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.withAPI(func(api *client.Client) error {
				r, err := oneRebuild(cmd.Context(), api, names)
				if err == nil {
					r, err = api.ControlRebuild(cmd.Context(), r.Projection, r.ID, verb)
				}
				if err != nil {
					return err
				}
				return render(c, c.out, c.rebuildListing([]client.Rebuild{r}, true))
			})
		},
	}
}
