package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
)

// The outcomes of a check.
const (
	checkOK   = "ok"
	checkWarn = "warning"
	checkFail = "failed"
	checkSkip = "skipped"
)

// check is what doctor found out about one thing.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	// Detail says what was found; Advice what to do about it.
	Detail string `json:"detail,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// examination collects checks.
type examination struct{ checks []check }

func (x *examination) add(status, name, detail, advice string) {
	x.checks = append(x.checks, check{Name: name, Status: status, Detail: detail, Advice: advice})
}

func (x *examination) ok(name, format string, args ...any) {
	x.add(checkOK, name, fmt.Sprintf(format, args...), "")
}

func (x *examination) fail(name string, err error, advice string) {
	x.add(checkFail, name, err.Error(), advice)
}

const doctorLong = `Examine this machine, the database and the broker, and say what to do about what is
wrong: versions (PostgreSQL 15 to 18, Kafka 3.9 to 4.x), rights, the budget of
connections, clocks, the schema, topics, ports, the data directory, and how well
programs are isolated here. Nothing is changed.

The exit code is 1 when a check failed; warnings do not count.`

func (c *cli) doctorCommand() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine machine, database and broker, and say what to do",
		Long:  doctorLong,
		Example: `  millrace doctor --config millrace.yaml
  millrace doctor -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			failed := 0
			err := c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				checks := c.examine(ctx, dsn)
				failed = count(checks, checkFail)
				return c.printChecks(w, checks)
			})
			if err == nil && failed > 0 {
				return &exitError{code: exitFailure}
			}
			return err
		},
	}
	addDSN(cmd, &dsn)
	return cmd
}

func count(checks []check, status string) int {
	n := 0
	for _, found := range checks {
		if found.Status == status {
			n++
		}
	}
	return n
}

// examine runs all checks. Each goes on where another failed.
func (c *cli) examine(ctx context.Context, dsn string) []check {
	x := &examination{}
	sources := c.sources()
	sources.Attach = true
	sources.Overrides = append(sources.Overrides, dsnOverride(dsn)...)
	config, err := sources.Load()
	var invalid *configs.InvalidError
	if errors.As(err, &invalid) {
		for _, fault := range invalid.Faults {
			x.add(checkFail, "configuration", fault.String(), "see `millrace config reference`")
		}
		return x.checks
	}
	x.ok("configuration", "valid")
	x.dataDir(config)
	x.ports(ctx, config)
	x.isolation(ctx, config)
	x.postgres(ctx, config)
	x.kafka(ctx, config)
	x.cluster(ctx, config)
	c.examineAPI(ctx, x)
	return x.checks
}

// examineAPI asks the API, as other commands would.
func (c *cli) examineAPI(ctx context.Context, x *examination) {
	api, err := c.connect()
	if err != nil {
		x.fail("api", err, "")
		return
	}
	defer api.Close()
	if _, err := api.Topics(ctx); err != nil {
		x.add(checkWarn, "api", explain(err), "")
		return
	}
	x.ok("api", "answers at %s and accepts the token", api.URL())
}

func (c *cli) printChecks(w io.Writer, checks []check) error {
	failed, warned := count(checks, checkFail), count(checks, checkWarn)
	switch c.output {
	case "json", "yaml":
		return c.document(w, map[string]any{"ok": failed == 0, "checks": checks})
	case "name":
		for _, found := range checks {
			if found.Status == checkFail {
				if _, err := fmt.Fprintln(w, found.Name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var out strings.Builder
	for _, found := range checks {
		mark, colour := symbol(found.Status)
		fmt.Fprintf(&out, "%s %s: %s\n", painted(mark, c.colours(), colour), found.Name, oneLine(found.Detail))
		if found.Advice != "" {
			fmt.Fprintf(&out, "    %s\n", found.Advice)
		}
	}
	fmt.Fprintf(&out, "\n%d checks, %d failed, %d with a warning\n", len(checks), failed, warned)
	_, err := io.WriteString(w, out.String())
	return err
}

func symbol(status string) (mark string, colour int) {
	switch status {
	case checkOK:
		return "✓", green
	case checkWarn:
		return "!", yellow
	case checkFail:
		return "✗", red
	default:
		return "-", plain
	}
}
