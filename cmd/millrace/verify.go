package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/verify"
)

const verifyLong = `Verify that what Millrace promises holds in the database: every change of an execution
has exactly one event, events are in order, no execution runs without a lease, views
agree with what they are views of, and more; --list shows all of it.

Nothing is written and nobody is kept waiting: all assertions read one snapshot of a
system that may be at work. What holds only once everything has been published and
consumed is asserted with --settled.

The exit code is 1 when an assertion does not hold, or could not be decided in time.
Notices, the traces of what Millrace survives as promised, do not count. The database
is that of postgres.dsn, DATABASE_URL, the PG* variables, or of a running "millrace up".`

// assertion is the outcome of one assertion as JSON shows it.
type assertion struct {
	Name     string    `json:"name"`
	Sentence string    `json:"sentence"`
	Kind     string    `json:"kind"`
	Settled  bool      `json:"settled,omitempty"`
	Status   string    `json:"status,omitempty"`
	Findings []finding `json:"findings,omitempty"`
	// More: there are more findings than are shown.
	More  bool   `json:"more,omitempty"`
	Error string `json:"error,omitempty"`
	SQL   string `json:"sql"`
}

type finding struct {
	Subject string `json:"subject"`
	Detail  string `json:"detail"`
}

func (c *cli) verifyCommand() *cobra.Command {
	var dsn string
	var options verify.Options
	var list bool
	var since string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify in the database that nothing was lost, doubled or reordered",
		Long:  verifyLong,
		Example: `  millrace verify
  millrace verify --settled -o json
  millrace verify --since 24h
  millrace verify --only events-complete,publish-order --rows 100`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case options.Rows < 1:
				return usagef("--rows: want 1 or more")
			case options.Timeout <= 0:
				return usagef("--timeout: want a positive duration")
			case list:
				return c.listAssertions()
			}
			at, err := moment("--since", since, c.now())
			if err != nil {
				return err
			}
			if at != nil {
				options.Since = *at
			}
			return c.withPool(cmd.Context(), dsn, func(pool *pgxpool.Pool) error {
				return c.verify(cmd.Context(), pool, options)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.Only, "only", nil, "run these assertions only")
	flags.StringVar(&since, "since", "", "only executions requested since then: a time such as 2026-11-21T10:00:00Z or a duration such as 2h")
	flags.BoolVar(&options.Settled, "settled", false, "nothing is under way: assert too that everything has been published and consumed")
	flags.IntVar(&options.Rows, "rows", verify.RowsDefault, "how many findings of each assertion to show")
	flags.DurationVar(&options.Timeout, "timeout", verify.TimeoutDefault, "how long the whole run may take")
	flags.BoolVar(&list, "list", false, "show the assertions and run none; with -o json, their SQL")
	var names []string
	for _, check := range verify.Checks() {
		names = append(names, check.Name)
	}
	_ = cmd.RegisterFlagCompletionFunc("only", fixed(names)) // the flag exists
	addDSN(cmd, &dsn)
	return cmd
}

func (c *cli) verify(ctx context.Context, pool *pgxpool.Pool, options verify.Options) error {
	// Of another schema the assertions know nothing.
	if err := postgres.CheckCurrent(ctx, pool); err != nil {
		return err
	}
	ok := true
	err := c.repeat(ctx, func(ctx context.Context, w io.Writer) error {
		report, err := verify.Run(ctx, pool, options)
		if errors.Is(err, verify.ErrUnknownCheck) {
			return usagef("--only: %s; see millrace verify --list", err)
		}
		if err != nil {
			return err
		}
		ok = report.OK()
		return c.printReport(w, report)
	})
	if err == nil && !ok {
		return &exitError{code: exitFailure}
	}
	return err
}

func (c *cli) listAssertions() error {
	var all []assertion
	for _, check := range verify.Checks() {
		all = append(all, assertionOf(check))
	}
	return render(c, c.out, listing[assertion]{
		items: all,
		name:  func(a assertion) string { return a.Name },
		columns: []column[assertion]{
			{title: "NAME", cell: func(a assertion) string { return a.Name }},
			{title: "KIND", cell: func(a assertion) string {
				if a.Settled {
					return a.Kind + ", settled"
				}
				return a.Kind
			}},
			{title: "WHAT HOLDS", cell: func(a assertion) string { return a.Sentence }},
		},
	})
}

func assertionOf(check verify.Check) assertion {
	return assertion{
		Name: check.Name, Sentence: check.Sentence, Kind: string(check.Kind), Settled: check.Settled, SQL: strings.TrimSpace(check.SQL),
	}
}

func (c *cli) printReport(w io.Writer, report verify.Report) error {
	switch c.output {
	case "json", "yaml":
		return c.document(w, map[string]any{"ok": report.OK(), "at": report.At, "assertions": assertionsOf(report)})
	case "name":
		for _, r := range report.Results {
			if r.Failed() {
				if _, err := fmt.Fprintln(w, r.Name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var out strings.Builder
	counts := map[verify.Status]int{}
	notices := 0
	for _, r := range report.Results {
		if r.Status == verify.Broken && r.Kind == verify.Notice {
			notices++
		} else {
			counts[r.Status]++
		}
		c.describeAssertion(&out, r)
	}
	fmt.Fprintf(&out, "\n%d assertions: %d hold, %d broken, %d undecided, %d with a notice\n",
		len(report.Results), counts[verify.Holds], counts[verify.Broken], counts[verify.Undecided], notices)
	_, err := io.WriteString(w, out.String())
	return err
}

func assertionsOf(report verify.Report) []assertion {
	var all []assertion
	for _, r := range report.Results {
		a := assertionOf(r.Check)
		a.Status, a.More = string(r.Status), r.More
		for _, f := range r.Findings {
			a.Findings = append(a.Findings, finding(f))
		}
		if r.Err != nil {
			a.Error = r.Err.Error()
		}
		all = append(all, a)
	}
	return all
}

// describeAssertion writes one line, and more for what does not hold.
func (c *cli) describeAssertion(out io.Writer, r verify.Result) {
	mark, colour := symbol(checkOK)
	switch {
	case r.Status == verify.Undecided:
		mark, colour = "?", yellow
	case r.Failed():
		mark, colour = symbol(checkFail)
	case r.Status == verify.Broken:
		mark, colour = symbol(checkWarn)
	}
	took := ""
	if c.output == "wide" {
		took = " (" + r.Took.Round(time.Millisecond).String() + ")"
	}
	fmt.Fprintf(out, "%s %s: %s%s\n", painted(mark, c.colours(), colour), r.Name, r.Sentence, took)
	if r.Err != nil {
		fmt.Fprintf(out, "    undecided: %s\n", oneLine(r.Err.Error()))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "    %s: %s\n", oneLine(f.Subject), oneLine(f.Detail))
	}
	if r.More {
		fmt.Fprintln(out, "    and more: see --rows")
	}
}
