package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
	"github.com/millrace/millrace/internal/secret"
)

const upLong = `Start everything on this machine, until interrupted: an in-process broker that speaks
the Kafka protocol, a PostgreSQL (that of postgres.dsn if it is set, else one from the
server programs found on the machine, else from programs fetched once), the schema, the
topics, and all roles.

Everything is kept in the data directory; starting again continues with it, also after
the process was killed. One directory serves one process at a time. The addresses are
left there as well, so that "millrace submit" and the others find them. Everything
listens on loopback addresses only. "millrace stop" stops it from another terminal,
"millrace clean" deletes what it kept.

With --demo it submits some twenty small programs once it is ready, shows how each of
them ended, and stays up.

For production there is "millrace serve".`

func (c *cli) upCommand() *cobra.Command {
	var sets []string
	var demo bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything on this machine, broker and database included",
		Long:  upLong,
		Example: `  millrace up
  millrace up --demo
  millrace up --data-dir ./data --api-listen 127.0.0.1:0
  millrace up --postgres-dsn postgres://me@127.0.0.1/millrace`,
		Args: args(cobra.NoArgs),
	}
	overrides := addSettings(cmd, func(path string) bool { return path == "roles" })
	addSets(cmd, &sets)
	cmd.Flags().BoolVar(&demo, "demo", false, "once ready, run a demonstration: a few seconds of real programs")
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
		return c.up(cmd.Context(), config, demo)
	}
	return cmd
}

func (c *cli) up(ctx context.Context, config configs.Config, demo bool) error {
	began := time.Now()
	claim, err := instance.Take(config.DataDir)
	if err != nil {
		return c.explainInUse(err)
	}
	log := c.newLog(config.Log, c.aside())
	demoCtx, stopDemo := context.WithCancel(ctx)
	defer stopDemo()
	var demonstration sync.WaitGroup
	announced := false
	err = app.Run(ctx, config, app.Log(log), app.Migrate(), app.OnReady(func(r app.Running) {
		announced = true
		if err := announce(config, r); err != nil {
			log.Warn("addresses could not be left in the data directory", slog.Any("cause", err))
		}
		c.welcome(r)
		if !demo {
			c.nextSteps(config, r, "")
			return
		}
		demonstration.Go(func() { c.demonstrate(demoCtx, config, r, began) })
	}))
	stopDemo()
	demonstration.Wait()
	if announced { // else the files are those of another process
		err = errors.Join(err, configs.RemoveEndpoints(config.DataDir))
	}
	return errors.Join(err, claim.Release())
}

// explainInUse says what to do about another instance.
func (c *cli) explainInUse(err error) error {
	var used *instance.InUseError
	if !errors.As(err, &used) {
		return err
	}
	return fmt.Errorf("%w: stop it with `%s`, or choose another directory with --data-dir", err, c.commandOn(used.Dir, "stop"))
}

// announce leaves the addresses in the data directory for other commands.
func announce(config configs.Config, r app.Running) error {
	endpoints := configs.Endpoints{URL: r.URL, AdminURL: r.AdminURL, GRPC: r.GRPC, Brokers: r.Brokers, DSN: config.Postgres.DSN}
	if config.Embedded.Postgres.Enabled {
		dsn, err := embedded.PostgresDSN(filepath.Join(config.DataDir, instance.PostgresDir))
		if err != nil {
			return err
		}
		endpoints.DSN = secret.New(dsn)
	}
	return configs.WriteEndpoints(config.DataDir, endpoints)
}

// welcome says where everything is.
func (c *cli) welcome(r app.Running) {
	tabs := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	lines := [][2]string{
		{"API", r.URL}, {"Metrics", r.AdminURL}, {"gRPC", r.GRPC},
		{"Kafka", strings.Join(r.Brokers, ",")}, {"Data", r.DataDir},
	}
	if r.AdminURL != "" {
		lines[1][1] += "/metrics"
	}
	// A terminal that has gone away is no reason to stop.
	fmt.Fprintln(c.out, c.bold("Millrace is ready."))
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(tabs, "  %s\t%s\n", l[0], l[1])
		}
	}
	_ = tabs.Flush()
}

// nextSteps says what to try, with commands that work as they stand. id is an
// execution with a history worth reading; it may be empty.
func (c *cli) nextSteps(config configs.Config, r app.Running, id string) {
	steps := [][2]string{
		{c.commandOn(config.DataDir, "submit --wait -- echo hello"), "run a program and see its output"},
		{c.commandOn(config.DataDir, "executions list"), "what has run, and how it ended"},
		{c.commandOn(config.DataDir, "executions watch"), "all events as they happen"},
	}
	if id != "" {
		steps = slices.Insert(steps, 2, [2]string{
			c.commandOn(config.DataDir, "executions events "+id), "the history of the second attempt above",
		})
	}
	if r.URL != "" {
		steps = append(steps, [2]string{r.URL + "/docs", "the API, to read and to try, in a browser"})
	}
	fmt.Fprint(c.out, "\nTry, in another terminal:\n\n")
	for _, step := range steps {
		fmt.Fprintf(c.out, "  %s\n      %s\n", c.bold(step[0]), step[1])
	}
	fmt.Fprintf(c.out, "\nStop with Ctrl-C or `%s`.\nAll of this is kept in %s; the next start continues with it.\n",
		c.commandOn(config.DataDir, "stop"), r.DataDir)
}

// commandOn writes a command line of this program, as it has to be typed here,
// for the instance of a data directory.
func (c *cli) commandOn(dataDir, line string) string {
	program := cmp.Or(c.program, "millrace")
	if usual, err := configs.DefaultDataDir(os.Getuid(), c.getenv); err == nil && usual == dataDir {
		return program + " " + line
	}
	return program + " --data-dir " + quoted(dataDir) + " " + line
}

// quoted makes one word of a text for a shell.
func quoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:,@", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// aside is where the log goes: stderr, and on a terminal less bright than what is
// said to the person in front of it.
func (c *cli) aside() io.Writer {
	if !c.errTerminal || c.getenv("NO_COLOR") != "" {
		return c.err
	}
	return dimmed{c.err}
}

// dimmed writes what it is given, a line of the log each time, in faint letters.
type dimmed struct{ to io.Writer }

func (d dimmed) Write(line []byte) (int, error) {
	text := "\x1b[2m" + strings.TrimSuffix(string(line), "\n") + "\x1b[0m\n"
	if _, err := io.WriteString(d.to, text); err != nil {
		return 0, err
	}
	return len(line), nil
}

func (c *cli) bold(text string) string {
	if !c.colours() {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}
