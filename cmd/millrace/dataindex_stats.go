package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/query"
)

// countables are what can be counted, by what people call it.
func countables() map[string]string {
	return map[string]string{"workflows": "workflow-instances", "tasks": "task-instances", "executions": "executions"}
}

func (c *cli) statsCommand() *cobra.Command {
	var ask client.StatisticsRequest
	of := "workflows"
	durations := false
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count workflow instances, tasks or executions, and how long they took",
		Long: `Count workflow instances, tasks or executions by one or two fields, by time too if
--bucket is given, and say how long they took. The largest groups come first, with
buckets the earliest.`,
		Example: `  millrace data-index stats
  millrace data-index stats --by name,status --durations
  millrace data-index stats --of executions --by user --bucket 1h`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, ok := countables()[of]
			if !ok {
				return usagef("--of: %q is none of workflows, tasks, executions", of)
			}
			if ask.Limit < 1 {
				return usagef("--limit: want 1 or more, not %d", ask.Limit)
			}
			if ask.Bucket < 0 {
				return usagef("--bucket: want 1s or more, not %s", ask.Bucket)
			}
			if err := checkJSON(ask.JSON); err != nil {
				return err
			}
			ask.Of = path
			if durations {
				ask.Duration = "duration"
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					found, err := api.Statistics(ctx, ask)
					if err != nil {
						return err
					}
					if found.Truncated {
						c.notef("there are more groups: ask for more with --limit, or narrow with --filter")
					}
					return render(c, w, statsListing(found.Groups, ask))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&of, "of", of, "what to count: workflows, tasks or executions")
	flags.StringSliceVar(&ask.GroupBy, "by", nil, "one or two fields to group by, or none; the status unless it is given")
	flags.DurationVar(&ask.Bucket, "bucket", 0, "divide by the time of the start too, into buckets as wide as this")
	flags.BoolVar(&durations, "durations", false, "also say how long they took")
	flags.StringVar(&ask.JSON, "filter", "", "count only what this filter selects, as JSON")
	flags.IntVar(&ask.Limit, "limit", 100, "how many groups at most")
	return cmd
}

func statsListing(groups []client.StatisticsGroup, ask client.StatisticsRequest) listing[client.StatisticsGroup] {
	type row = client.StatisticsGroup
	l := listing[row]{
		items: groups, empty: "nothing is selected",
		name: func(g row) string {
			var values []string
			for _, field := range keysOf(groups, ask) {
				values = append(values, keyText(g, field))
			}
			return strings.Join(values, "/")
		},
	}
	if ask.Bucket > 0 {
		l.columns = append(l.columns, column[row]{title: "FROM", cell: func(g row) string {
			if g.Bucket == nil {
				return "-"
			}
			return g.Bucket.UTC().Format(time.RFC3339)
		}})
	}
	for _, field := range keysOf(groups, ask) {
		l.columns = append(l.columns, column[row]{title: strings.ToUpper(field), cell: func(g row) string { return keyText(g, field) }})
	}
	l.columns = append(l.columns, column[row]{title: "COUNT", cell: func(g row) string { return fmt.Sprint(g.Count) }})
	if ask.Duration != "" {
		for _, d := range []struct {
			title string
			of    func(*client.StatisticsDurations) float64
		}{
			{"MIN", func(d *client.StatisticsDurations) float64 { return d.MinMillis }},
			{"AVG", func(d *client.StatisticsDurations) float64 { return d.AvgMillis }},
			{"P50", func(d *client.StatisticsDurations) float64 { return d.P50Millis }},
			{"P95", func(d *client.StatisticsDurations) float64 { return d.P95Millis }},
			{"MAX", func(d *client.StatisticsDurations) float64 { return d.MaxMillis }},
		} {
			l.columns = append(l.columns, column[row]{title: d.title, cell: func(g row) string {
				if g.Durations == nil {
					return "-"
				}
				return span(time.Duration(d.of(g.Durations) * float64(time.Millisecond)))
			}})
		}
	}
	return l
}

// keysOf are the fields that groups have in common, in the order that was asked for.
func keysOf(groups []client.StatisticsGroup, ask client.StatisticsRequest) []string {
	if len(groups) == 0 {
		return nil
	}
	var fields []string
	for field := range groups[0].Keys {
		fields = append(fields, field)
	}
	slices.SortFunc(fields, func(a, b string) int { return slices.Index(ask.GroupBy, a) - slices.Index(ask.GroupBy, b) })
	return fields
}

func keyText(g client.StatisticsGroup, field string) string {
	if v := g.Keys[field]; v != nil {
		return dash(*v)
	}
	return "-"
}

func (c *cli) searchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "search",
		Short: "Make searches of the data index fast, or taking events in cheaper",
		Long: `Make and drop the optional indexes of the data index: "text" for full text search, "json"
for filters on output and on the documents of tasks. Without them such queries work too,
but read every row; with them every event costs more to take in: how much stands in
docs/data-index-queries.md. The database is found as by "millrace migrate".`,
		Example: `  millrace data-index search status
  millrace data-index search enable text`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		c.searchAction("status", "Show which optional indexes there are",
			`Show which optional indexes there are, and how large they are.`, nil),
		c.searchAction("enable", "Make the indexes of a use",
			`Make the indexes of a use: text or json, or both if none is named. It may take minutes;
reads and writes go on meanwhile. What was broken off is made anew by the same command.`,
			func(ctx context.Context, x query.Indexer, use query.IndexUse) error {
				return x.Enable(ctx, use, func(i query.Index) { c.notef("making %s on %s", i.Name, i.Table) })
			}),
		c.searchAction("disable", "Drop the indexes of a use",
			`Drop the indexes of a use: text or json, or both if none is named. Reads and writes go on
meanwhile.`, func(ctx context.Context, x query.Indexer, use query.IndexUse) error { return x.Disable(ctx, use) }),
	)
	return cmd
}

func (c *cli) searchAction(name, short, long string, act func(context.Context, query.Indexer, query.IndexUse) error) *cobra.Command {
	var dsn string
	use, check, example := name, cobra.NoArgs, "  millrace data-index search "+name
	if act != nil {
		use, check, example = name+" [text|json]", cobra.MaximumNArgs(1), example+"\n"+example+" text"
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: args(check),
		ValidArgs: []string{string(query.IndexText), string(query.IndexJSON)},
		RunE: func(cmd *cobra.Command, named []string) error {
			uses := query.IndexUses()
			if len(named) == 1 {
				if uses = []query.IndexUse{query.IndexUse(named[0])}; !slices.Contains(query.IndexUses(), uses[0]) {
					return usagef("%s: %q is neither text nor json", cmd.CommandPath(), named[0])
				}
			}
			return c.withPool(cmd.Context(), dsn, func(pool *pgxpool.Pool) error {
				x := query.NewIndexer(pool)
				if act != nil {
					for _, use := range uses {
						if err := act(cmd.Context(), x, use); err != nil {
							return err
						}
					}
				}
				states, err := x.States(cmd.Context())
				if err != nil {
					return err
				}
				return render(c, c.out, indexListing(states))
			})
		},
	}
	addDSN(cmd, &dsn)
	return cmd
}

// indexRow is an optional index as JSON shows it.
type indexRow struct {
	Name  string `json:"name"`
	Table string `json:"table"`
	Use   string `json:"use"`
	State string `json:"state"`
	Bytes int64  `json:"bytes"`
}

func indexListing(states []query.IndexState) listing[indexRow] {
	var items []indexRow
	for _, s := range states {
		state := "absent"
		switch {
		case s.Present:
			state = "present"
		case s.Broken:
			state = "broken"
		}
		items = append(items, indexRow{Name: s.Name, Table: s.Table, Use: string(s.Use), State: state, Bytes: s.Bytes})
	}
	return listing[indexRow]{
		items: items,
		name:  func(i indexRow) string { return i.Name },
		columns: []column[indexRow]{
			{title: "INDEX", cell: func(i indexRow) string { return i.Name }},
			{title: "USE", cell: func(i indexRow) string { return i.Use }},
			{title: "STATE", cell: func(i indexRow) string { return i.State }},
			{title: "MIB", cell: func(i indexRow) string { return fmt.Sprint((i.Bytes + 1<<19) >> 20) }},
		},
	}
}
