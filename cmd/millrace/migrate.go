package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/postgres"
)

func (c *cli) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database schema up to date",
		Long: `Bring the database schema up to date, or show how it stands. The database is that of
postgres.dsn, DATABASE_URL, the PG* variables, or of a running "millrace up".`,
		Example: `  millrace migrate up
  millrace migrate status`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.migrateUpCommand(), c.migrateStatusCommand())
	return cmd
}

// withPool calls use with a connection to the configured database.
func (c *cli) withPool(ctx context.Context, dsn string, use func(*pgxpool.Pool) error) error {
	sources := c.sources()
	sources.Attach = true
	sources.Required = []string{"postgres.dsn"}
	sources.Overrides = append(sources.Overrides, dsnOverride(dsn)...)
	config, err := sources.Load()
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, app.PostgresConfig(config))
	if err != nil {
		return err
	}
	defer pool.Close()
	return use(pool)
}

// applied is a migration as JSON shows it.
type applied struct {
	Version int64      `json:"version"`
	Name    string     `json:"name,omitempty"`
	State   string     `json:"state"`
	At      *time.Time `json:"applied_at,omitempty"`
	Took    string     `json:"took,omitempty"`
}

func (c *cli) migrationListing(items []applied, empty string) listing[applied] {
	now := c.now()
	return listing[applied]{
		items: items, empty: empty,
		name: func(m applied) string { return fmt.Sprint(m.Version) },
		columns: []column[applied]{
			{title: "VERSION", cell: func(m applied) string { return fmt.Sprint(m.Version) }},
			{title: "STATE", cell: func(m applied) string { return m.State }},
			{title: "APPLIED", cell: func(m applied) string {
				if m.At == nil {
					return "-"
				}
				return age(now, *m.At) + " ago"
			}},
			{title: "NAME", cell: func(m applied) string { return m.Name }},
		},
	}
}

func (c *cli) migrateUpCommand() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that the database does not have",
		Long: `Apply the migrations that the database does not have, each in a transaction of its own.
It is safe to run again, and by several processes at once: one works, the others wait.`,
		Example: `  millrace migrate up --config millrace.yaml
  DATABASE_URL=postgres://millrace@db/millrace millrace migrate up`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withPool(cmd.Context(), dsn, func(pool *pgxpool.Pool) error {
				done, errMigrate := postgres.Migrate(cmd.Context(), pool)
				var items []applied
				at := c.now()
				for _, m := range done {
					items = append(items, applied{Version: m.Version, Name: m.Name, State: "applied", At: &at, Took: m.Duration.String()})
				}
				// What was applied is told even when a later one failed.
				if err := render(c, c.out, c.migrationListing(items, "the schema is up to date")); err != nil {
					return err
				}
				return errMigrate
			})
		},
	}
	addDSN(cmd, &dsn)
	return cmd
}

func (c *cli) migrateStatusCommand() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations the database has",
		Long: `Show which migrations the database has. The exit code is 1 when some are pending, or
when the database has some that this binary does not know ("unknown") and cannot go on
without; it can with those that are "newer". Nothing is written.`,
		Example: `  millrace migrate status
  millrace migrate status -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withPool(cmd.Context(), dsn, func(pool *pgxpool.Pool) error {
				err := c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					status, err := postgres.MigrationStatus(ctx, pool)
					if err != nil {
						return err
					}
					return render(c, w, c.migrationListing(statusItems(status), "no migrations"))
				})
				if err != nil {
					return err
				}
				return postgres.CheckCurrent(cmd.Context(), pool)
			})
		},
	}
	addDSN(cmd, &dsn)
	return cmd
}

func statusItems(status []postgres.Migration) []applied {
	var items []applied
	for _, m := range status {
		item := applied{Version: m.Version, Name: m.Name, State: "pending"}
		switch {
		case m.Newer:
			item.State = "newer"
		case m.Name == "":
			item.State = "unknown"
		case !m.Applied.IsZero():
			item.State = "applied"
		}
		if !m.Applied.IsZero() {
			item.At = &m.Applied
		}
		items = append(items, item)
	}
	return items
}
