package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
)

// surroundings are what a command sees of the world; tests bring their own.
type surroundings struct {
	in                       io.Reader
	out, err                 io.Writer
	environ                  []string
	outTerminal, errTerminal bool
	now                      func() time.Time
	// logClients has libraries log to the log of the process; nil leaves them alone.
	logClients func(*slog.Logger)
	// program is how this program was called; empty stands for "millrace".
	program string
	// width is that of the terminal on stdout, in characters; 0 when there is none.
	width int
}

// cli is the state that all commands share.
type cli struct {
	surroundings
	// global flags
	output  string
	watch   time.Duration
	dataDir string
	config  string
	url     string
	token   string
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, s surroundings) int {
	c := &cli{surroundings: s}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	return c.report(ctx, root.ExecuteContext(ctx))
}

const rootLong = `Millrace runs programs and functions on request: durably, in order where order is
asked for, and with every fact on the way recorded as an event.

Start everything on this machine with "millrace up", then submit work:

  millrace submit --wait -- echo hello

The address of the API and its token are found by themselves where "millrace up"
runs on the same machine; elsewhere set --url and --token, or MILLRACE_API_URL and
MILLRACE_TOKEN.

Exit codes: 0 success, 1 failure, 2 wrong use, 3 not found, 4 timed out.`

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Run programs and functions through a durable, event-driven pipeline",
		Long:  rootLong,
		Example: `  millrace up
  millrace submit --wait -- sh -c 'echo hello; exit 3'
  millrace executions list --state FAILED -o wide`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&c.output, "output", "o", "table", "how to print: table, wide, json, yaml or name")
	flags.DurationVar(&c.watch, "watch", 0, "print again at this interval until interrupted (--watch alone: 2s)")
	flags.Lookup("watch").NoOptDefVal = "2s"
	flags.StringVar(&c.dataDir, "data-dir", "", "directory of everything that Millrace keeps on disk")
	flags.StringVar(&c.config, "config", "", "configuration file (YAML)")
	flags.StringVar(&c.url, "url", "", "address of the API")
	flags.StringVar(&c.token, "token", "", "token of the API; prefer MILLRACE_TOKEN, which ps does not show")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return c.checkGlobals() }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s%s: see %s --help", err, flagSuggestion(cmd, err), cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	_ = root.RegisterFlagCompletionFunc("output", fixed(outputs())) // the flag exists
	root.AddCommand(
		c.upCommand(),
		c.stopCommand(),
		c.cleanCommand(),
		c.readyCommand(),
		c.serveCommand(),
		c.migrateCommand(),
		c.submitCommand(),
		c.executionsCommand(),
		c.instancesCommand(), c.tasksCommand(), c.signalsCommand(), c.jobsCommand(),
		c.eventsGroup(),
		c.explainCommand(),
		c.queryCommand(),
		c.queueCommand(),
		c.workersCommand(),
		c.limitsCommand(),
		c.workflowsCommand(),
		c.triggersCommand(),
		c.dlqCommand(),
		c.replayCommand(), c.projectionsCommand(),
		c.outboxCommand(),
		c.consumersCommand(),
		c.topicsCommand(),
		c.dataIndexCommand(),
		c.sagasCommand(),
		c.configCommand(),
		c.doctorCommand(),
		c.verifyCommand(),
		c.purgeCommand(),
		c.tokenCommand(),
		c.versionCommand(),
		c.completionCommand(),
	)
	return root
}

// group is the RunE of commands that only hold others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, child := range cmd.Commands() {
		names = append(append(names, child.Name()), child.Aliases...)
	}
	hint := ""
	if s := configs.Suggest(args[0], names); s != "" {
		hint = "; did you mean " + s + "?"
	}
	return usagef("%s: no command %q%s: see %s --help", cmd.CommandPath(), args[0], hint, cmd.CommandPath())
}

// flagSuggestion finds what an unknown flag was meant to be.
func flagSuggestion(cmd *cobra.Command, err error) string {
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	if s := configs.Suggest(name, flagNames(cmd)); s != "" {
		return "; did you mean --" + s + "?"
	}
	return ""
}

// args makes an argument check whose error counts as wrong use.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s: %s: see %s --help", cmd.CommandPath(), err, cmd.CommandPath())
		}
		return nil
	}
}

// fixed completes a flag with a list of values.
func fixed(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

func (c *cli) checkGlobals() error {
	for _, o := range outputs() {
		if o == c.output {
			if c.watch < 0 {
				return usagef("--watch: want a positive interval")
			}
			return nil
		}
	}
	hint := ""
	if s := configs.Suggest(c.output, outputs()); s != "" {
		hint = "; did you mean " + s + "?"
	}
	return usagef("--output: want one of %s, not %q%s", strings.Join(outputs(), ", "), c.output, hint)
}

func (c *cli) getenv(name string) string {
	for i := len(c.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(c.environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// sources returns where the configuration comes from: file, environment and the
// global flags.
func (c *cli) sources() configs.Sources {
	s := configs.Sources{File: c.config, Environ: c.environ}
	if c.dataDir != "" {
		s.Overrides = append(s.Overrides, configs.Override{Path: "data_dir", Value: c.dataDir, Origin: "--data-dir"})
	}
	return s
}

// resolveDataDir finds the data directory without asking for a valid
// configuration where none is named: a client needs nothing else of it.
func (c *cli) resolveDataDir() (string, error) {
	if c.config != "" || c.getenv("MILLRACE_CONFIG") != "" {
		config, err := c.sources().Load()
		return config.DataDir, err
	}
	if c.dataDir != "" {
		return c.dataDir, nil
	}
	if dir := c.getenv("MILLRACE_DATA_DIR"); dir != "" {
		return dir, nil
	}
	return configs.DefaultDataDir(os.Getuid(), c.getenv)
}

// connect returns a client of the API. The caller closes it.
func (c *cli) connect() (*client.Client, error) {
	dir, err := c.resolveDataDir()
	if err != nil {
		return nil, err
	}
	found, err := client.Discover(c.url, secret.New(c.token), dir, c.getenv)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{URL: found.URL, Token: found.Token, UserAgent: "millrace/" + buildVersion()})
}

// notef tells a person at the terminal how things stand; a pipe hears nothing.
func (c *cli) notef(format string, args ...any) {
	if c.errTerminal {
		fmt.Fprintf(c.err, format+"\n", args...)
	}
}
