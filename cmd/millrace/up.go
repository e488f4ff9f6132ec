package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/secret"
)

const upLong = `Start everything on this machine, until interrupted: an in-process broker that speaks
the Kafka protocol, a PostgreSQL (that of postgres.dsn if it is set, else one from the
server programs found on the machine, else from programs fetched once), the schema, the
topics, and all roles.

Everything is kept in the data directory; starting again continues with it, also after
the process was killed. One directory serves one process at a time. The addresses are
left there as well, so that "millrace submit" and the others find them. Everything
listens on loopback addresses only.

For production there is "millrace serve".`

func (c *cli) upCommand() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything on this machine, broker and database included",
		Long:  upLong,
		Example: `  millrace up
  millrace up --data-dir ./data --api-listen 127.0.0.1:0
  millrace up --postgres-dsn postgres://me@127.0.0.1/millrace`,
		Args: args(cobra.NoArgs),
	}
	overrides := addSettings(cmd, func(path string) bool { return path == "roles" })
	addSets(cmd, &sets)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sources := c.sources()
		sources.Embedded = true
		sources.Overrides = append(sources.Overrides, overrides()...)
		sources, err := c.withSets(sources, sets)
		if err != nil {
			return err
		}
		config, err := sources.Load()
		if err != nil {
			return err
		}
		return c.up(cmd, config)
	}
	return cmd
}

func (c *cli) up(cmd *cobra.Command, config configs.Config) error {
	log := newLogger(config.Log, c.err)
	announced := false
	err := app.Run(cmd.Context(), config, app.Log(log), app.Migrate(), app.OnReady(func(r app.Running) {
		announced = true
		if err := announce(config, r); err != nil {
			log.Warn("addresses could not be left in the data directory", slog.Any("cause", err))
		}
		c.welcome(r)
	}))
	if announced { // else the files are those of another process
		err = errors.Join(err, configs.RemoveEndpoints(config.DataDir))
	}
	return err
}

// announce leaves the addresses in the data directory for other commands.
func announce(config configs.Config, r app.Running) error {
	endpoints := configs.Endpoints{URL: r.URL, Brokers: r.Brokers, DSN: config.Postgres.DSN}
	if config.Embedded.Postgres.Enabled {
		dsn, err := embedded.PostgresDSN(filepath.Join(config.DataDir, "postgres"))
		if err != nil {
			return err
		}
		endpoints.DSN = secret.New(dsn)
	}
	return configs.WriteEndpoints(config.DataDir, endpoints)
}

// welcome says where everything is and what to try.
func (c *cli) welcome(r app.Running) {
	tabs := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	lines := [][2]string{
		{"API", r.URL}, {"Metrics", r.AdminURL + "/metrics"},
		{"Kafka", strings.Join(r.Brokers, ",")}, {"Data", r.DataDir},
	}
	// A terminal that has gone away is no reason to stop.
	_, _ = fmt.Fprintln(c.out, "Millrace is ready.")
	for _, l := range lines {
		_, _ = fmt.Fprintf(tabs, "  %s\t%s\n", l[0], l[1])
	}
	_ = tabs.Flush()
	_, _ = fmt.Fprint(c.out, `Try, in another terminal:
  millrace submit --wait -- echo hello
  millrace executions list
  millrace executions watch
Stop with Ctrl-C.
`)
}
