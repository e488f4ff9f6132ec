package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
)

const serveLong = `Run roles of Millrace on a real Kafka and a real PostgreSQL, until interrupted. All
roles run in this process unless --roles names some; any number of processes may play
the same role.

The schema must be current: run "millrace migrate up" first, or give --migrate. Topics
that do not exist are created. SIGTERM and SIGINT stop it in order: readiness fails,
requests end, running executions may finish for worker.shutdown_grace and are handed
back otherwise. A second signal ends the process at once; nothing that was acknowledged
is lost.`

func (c *cli) serveCommand() *cobra.Command {
	var sets []string
	var migrate bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run roles of Millrace on a real Kafka and PostgreSQL",
		Long:  serveLong,
		Example: `  millrace serve --config millrace.yaml
  millrace serve --roles api,coordinator,relay --kafka-brokers kafka-1:9092,kafka-2:9092
  millrace serve --roles worker --worker-slots 64 --set worker.lease=1m`,
		Args: args(cobra.NoArgs),
	}
	overrides := addSettings(cmd, func(path string) bool { return strings.HasPrefix(path, "embedded.") })
	addSets(cmd, &sets)
	cmd.Flags().BoolVar(&migrate, "migrate", false, "apply pending migrations at the start")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sources := c.sources()
		sources.Required, sources.BrokersOptional = []string{"postgres.dsn"}, true
		sources.Overrides = append(sources.Overrides, overrides()...)
		sources, err := c.withSets(sources, sets)
		if err != nil {
			return err
		}
		config, err := sources.Load()
		if err != nil {
			return err
		}
		options := []app.Option{app.Log(c.newLog(config.Log, c.err))}
		if migrate {
			options = append(options, app.Migrate())
		}
		return app.Run(cmd.Context(), config, options...)
	}
	return cmd
}

// newLog returns the log that the settings describe, and has libraries log there too.
func (c *cli) newLog(settings configs.Log, w io.Writer) *slog.Logger {
	log := newLogger(settings, w)
	if c.logClients != nil {
		c.logClients(log)
	}
	return log
}

// newLogger returns the log that the settings describe.
func newLogger(settings configs.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	// The configuration accepts only names that slog knows.
	_ = level.UnmarshalText([]byte(settings.Level))
	options := &slog.HandlerOptions{Level: level}
	if settings.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
