package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Defaults of Options.
const (
	RowsDefault    = 10
	TimeoutDefault = 30 * time.Second
)

// ErrUnknownCheck: there is no assertion of that name.
var ErrUnknownCheck = errors.New("no such assertion")

// Kind says what a finding means.
type Kind string

// The kinds.
const (
	// Fault: the promise is broken.
	Fault Kind = "fault"
	// Notice: the trace of something that Millrace survives as promised.
	Notice Kind = "notice"
)

// Check is one assertion.
type Check struct {
	Name string
	// Sentence says what holds.
	Sentence string
	Kind     Kind
	// Settled assertions hold only when nothing is under way.
	Settled bool
	// SQL returns the rows for which it does not hold: what they are about, and
	// what is wrong, both text.
	SQL string
}

// Finding is a row for which an assertion does not hold.
type Finding struct{ Subject, Detail string }

// Status is the outcome of an assertion.
type Status string

// The outcomes.
const (
	Holds     Status = "holds"
	Broken    Status = "broken"
	Undecided Status = "undecided" // it could not be asked, or not in time
)

// Result is what became of one assertion.
type Result struct {
	Check
	Status Status
	// Findings are the first rows; More says that there are others.
	Findings []Finding
	More     bool
	// Err is why it is undecided.
	Err  error
	Took time.Duration
}

// Failed reports whether the result keeps a run from being a success.
func (r Result) Failed() bool {
	return r.Status == Undecided || r.Status == Broken && r.Kind == Fault
}

// Report is a run of assertions.
type Report struct {
	// At is the time of the snapshot, by the database's clock.
	At      time.Time
	Results []Result
}

// OK reports whether every assertion was decided and none is at fault.
func (r Report) OK() bool { return !slices.ContainsFunc(r.Results, Result.Failed) }

// Broken returns the results that are not Holds, as text: one line for each, with
// its first findings. It is empty when all hold.
func (r Report) Broken() string {
	var out strings.Builder
	for _, x := range r.Results {
		if !x.Failed() {
			continue
		}
		fmt.Fprintf(&out, "%s: %s\n", x.Name, x.Status)
		if x.Err != nil {
			fmt.Fprintf(&out, "    %v\n", x.Err)
		}
		for _, f := range x.Findings {
			fmt.Fprintf(&out, "    %s: %s\n", f.Subject, f.Detail)
		}
	}
	return out.String()
}

// Options says what to run and how far to go. The zero value runs everything that
// holds on a live system.
type Options struct {
	// Only names the assertions to run, Settled ones too. Empty: see Settled.
	Only []string
	// Settled adds the assertions that hold only when nothing is under way.
	Settled bool
	// Since leaves out executions that were requested before, and what is told of them,
	// where that saves time. Zero: all.
	Since time.Time
	// Rows is how many findings of each assertion are returned. Defaults to 10.
	Rows int
	// Timeout bounds the run. Defaults to 30 s.
	Timeout time.Duration
}

// choose returns the assertions that the options ask for.
func (o Options) choose() ([]Check, error) {
	all := Checks()
	if len(o.Only) == 0 {
		return slices.DeleteFunc(all, func(c Check) bool { return c.Settled && !o.Settled }), nil
	}
	var chosen []Check
	for _, name := range o.Only {
		i := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("verify: %q: %w", name, ErrUnknownCheck)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Run runs assertions on one snapshot. An error means that none could be asked;
// what a single one ran into is in its result.
func Run(ctx context.Context, db Beginner, o Options) (Report, error) {
	checks, err := o.choose()
	if err != nil {
		return Report{}, err
	}
	if o.Rows <= 0 {
		o.Rows = RowsDefault
	}
	if o.Timeout <= 0 {
		o.Timeout = TimeoutDefault
	}
	end := time.Now().Add(o.Timeout)
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing was written
	report := Report{}
	_, err = tx.Exec(ctx, settings)
	if err == nil {
		err = hold(ctx, tx)
	}
	if err == nil && !o.Since.IsZero() {
		_, err = tx.Exec(ctx, `SELECT set_config('millrace.verify_since', $1, true), set_config('millrace.verify_since_id', $2, true)`,
			o.Since.UTC().Format(time.RFC3339Nano), firstID(o.Since))
	}
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT now()`).Scan(&report.At)
	}
	if err != nil {
		return Report{}, fmt.Errorf("verify: %w", err)
	}
	for _, c := range checks {
		report.Results = append(report.Results, ask(ctx, tx, c, o.Rows, time.Until(end)))
		if err := ctx.Err(); err != nil {
			return report, fmt.Errorf("verify: %w", err)
		}
	}
	return report, nil
}

// firstID is the lowest id that an execution can have that is requested at a time: a
// UUIDv7 begins with its milliseconds.
func firstID(at time.Time) string {
	ms := max(at.UnixMilli(), 0)
	return fmt.Sprintf("%08x-%04x-0000-0000-000000000000", ms>>16&0xffffffff, ms&0xffff)
}

// The assertions read whole tables and join them by equality. What is said in a
// WITH has no statistics, so that the planner may take a nested loop for cheap
// which would run for hours; jit costs more than it saves on queries that run once.
const settings = `SET LOCAL enable_nestloop = off; SET LOCAL jit = off; SET LOCAL work_mem = '64MB';
SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL lock_timeout = '5s'`

// hold keeps the tables of projections from being replaced. A rebuild does that, and a
// snapshot from before it sees the new tables without what was written to them last. LOCK
// takes no snapshot; the rebuild waits for it, and has its own way of doing so.
func hold(ctx context.Context, tx pgx.Tx) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `LOCK TABLE execution_views IN ACCESS SHARE MODE`)
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return nil // whoever asks for it will say so
	}
	return err
}

const undefinedTable = "42P01"

var errNoTime = errors.New("the time of the run is over")

// ask runs one assertion behind a savepoint, so that the next ones can go on with
// the snapshot whatever becomes of it.
func ask(ctx context.Context, tx pgx.Tx, c Check, rows int, within time.Duration) (r Result) {
	r = Result{Check: c, Status: Undecided}
	began := time.Now()
	defer func() { r.Took = time.Since(began) }()
	if within < time.Millisecond {
		r.Err = errNoTime
		return r
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		timeout := strconv.FormatInt(within.Milliseconds(), 10)
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, timeout); err != nil {
			return err
		}
		// Planned with the statistics of now; a prepared statement would stay behind.
		found, err := tx.Query(ctx, c.SQL+" LIMIT $1", pgx.QueryExecModeExec, rows+1)
		if err != nil {
			return err
		}
		r.Findings, err = pgx.CollectRows(found, pgx.RowToStructByPos[Finding])
		return err
	})
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer) && answer.Code == "57014":
		r.Err = errNoTime
	case err != nil:
		r.Err = err
	case len(r.Findings) == 0:
		r.Status = Holds
	default:
		r.Status = Broken
		if len(r.Findings) > rows {
			r.Findings, r.More = r.Findings[:rows], true
		}
	}
	return r
}
