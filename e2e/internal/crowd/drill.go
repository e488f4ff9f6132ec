package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/testenv/program"
	"github.com/millrace/millrace/internal/verify"
)

// Options say what drill to run.
type Options struct {
	// Dir holds data and logs; it must exist. Millrace is the program.
	Dir, Millrace string
	// Executions, Users and Coordinators are how many there are.
	Executions, Users, Coordinators int
	Seed                            uint64
	// Hurts is how often a coordinator is killed or frozen at most; 0 is until all
	// executions have ended.
	Hurts int
	// Real runs on Apache Kafka instead of the embedded broker.
	Real bool
	// DSN is a PostgreSQL to use, with an empty database; by default the drill starts
	// one of its own.
	DSN string
	// Log gets a line per thing that happens.
	Log io.Writer
}

// Report is what a drill has found.
type Report struct {
	Options
	Kills, Freezes int
	// Ends counts the executions by their last state, Admissions all attempts that
	// were admitted, and Admitters the processes that did.
	Ends                  map[string]int
	Admissions, Admitters int
	// Snapshots is how often the books were looked at under way.
	Snapshots int
	// Peaks is the most that was in use at once, by resource class.
	Peaks map[string]history.Resources
	Took  time.Duration
	Found []history.Violation
}

// Line is the verdict as one line.
func (r Report) Line() string {
	word := "PASS"
	if len(r.Found) > 0 {
		word = "FAIL"
	}
	return fmt.Sprintf("crowd: %s seed=%d executions=%d users=%d coordinators=%d kills=%d freezes=%d admissions=%d admitters=%d snapshots=%d peaks=%d/%d,%d/%d"+
		" completed=%d failed=%d cancelled=%d rejected=%d violations=%d took=%s",
		word, r.Seed, r.Executions, r.Users, r.Coordinators, r.Kills, r.Freezes, r.Admissions, r.Admitters, r.Snapshots,
		r.Peaks[everyday].Slots, everydayCap, r.Peaks[heavy].Slots, heavyCap,
		r.Ends[client.Completed], r.Ends[client.Failed], r.Ends[client.Cancelled], r.Ends[client.Rejected], len(r.Found), r.Took.Round(100*time.Millisecond))
}

// drill is one on its way.
type drill struct {
	Options
	in     *installation
	began  time.Time
	mu     sync.Mutex // for what is found
	report Report
	ids    []string // of the asks, in their order
	// stuck is true once something did not go on.
	stuck bool
}

// stuckAfter is for how long nothing may move: more than all leases and backoffs.
const stuckAfter = 90 * time.Second

// Run runs a drill. An error means that it could not take place; what is wrong with
// what was decided is in the report.
func Run(ctx context.Context, o Options) (r Report, err error) {
	d := &drill{Options: o, began: time.Now(), ids: make([]string, o.Executions), report: Report{Options: o, Ends: map[string]int{}}}
	if d.in, err = install(ctx, o); err != nil {
		return d.report, fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, d.in.close()) }()
	d.note("all processes are ready")
	if err := d.work(ctx); err != nil {
		return d.report, err
	}
	if err := d.settle(ctx); err != nil {
		return d.report, err
	}
	if err := d.judge(ctx); err != nil {
		return d.report, err
	}
	if err := d.in.stop(ctx); err != nil {
		d.find("stopping", "processes", "%v", err)
	}
	d.alarms()
	d.report.Took = time.Since(d.began)
	return d.report, nil
}

func (d *drill) note(format string, args ...any) {
	fmt.Fprintf(d.Log, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// find is safe for concurrent use.
func (d *drill) find(check, subject, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Found = append(d.report.Found, history.Violation{Check: check, Subject: subject, Text: fmt.Sprintf(format, args...)})
}

// work has the crowd ask and the coordinators suffer until every execution has ended.
func (d *drill) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.torment(ctx, done); err != nil {
			cancel(fmt.Errorf("torment: %w", err))
		}
	})
	all.Go(func() {
		if err := d.watch(ctx, done); err != nil {
			cancel(fmt.Errorf("watch: %w", err))
		}
	})
	err := d.submit(ctx)
	if err == nil {
		d.note("all is asked for")
		err = d.drain(ctx)
	}
	close(done)
	all.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = d.drain(ctx) // a coordinator was away
	}
	return err
}

const (
	batch      = 50
	submitters = 4
	// trickle is how many executions a second are asked for once half of them wait, so
	// that the coordinators are hurt in the middle of it.
	trickle = 100
)

// submit asks for everything: half of it at once, the other half bit by bit.
func (d *drill) submit(ctx context.Context) error {
	c, err := d.in.client()
	if err != nil {
		return err
	}
	defer c.Close()
	asks := plan(d.Seed, d.Executions, d.Users)
	errs := make([]error, submitters)
	var all sync.WaitGroup
	for s := range submitters {
		all.Go(func() {
			for from := s * batch; from < len(asks) && errs[s] == nil; from += submitters * batch {
				if from > len(asks)/2 {
					pause(ctx, nil, submitters*batch*time.Second/trickle)
				}
				errs[s] = d.submitBatch(ctx, c, asks, from, min(from+batch, len(asks)))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (d *drill) submitBatch(ctx context.Context, c *client.Client, asks []ask, from, to int) error {
	requests := make([]client.Request, 0, to-from)
	for _, a := range asks[from:to] {
		requests = append(requests, a.request)
	}
	outcomes, err := c.SubmitBatch(ctx, requests)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	for i, o := range outcomes {
		if o.Problem != nil {
			return fmt.Errorf("submit %s: %w", requests[i].IdempotencyKey, o.Problem)
		}
		d.ids[from+i] = o.Execution.ID
	}
	for i, a := range asks[from:to] {
		if !a.cancel {
			continue
		}
		// One that has ended by now cannot be cancelled.
		var problem *client.Problem
		if _, err := c.Cancel(ctx, d.ids[from+i], "changed my mind"); err != nil && !errors.As(err, &problem) {
			return fmt.Errorf("cancel: %w", err)
		}
	}
	return nil
}

// watch holds what is true at every moment against snapshots of the database, until
// the work is done.
func (d *drill) watch(ctx context.Context, done <-chan struct{}) error {
	for told := false; ; d.report.Snapshots++ {
		report, err := verify.Run(ctx, d.in.db, verify.Options{
			Only: []string{"admission-books", "capacity", "concurrency-keys", "leases", "ends"}, Timeout: time.Minute,
		})
		if err != nil {
			return err
		}
		if !report.OK() && !told {
			d.find("books", "snapshot", "%s", report.Broken())
			told = true
		}
		if !pause(ctx, done, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// drain waits until every execution has ended.
func (d *drill) drain(ctx context.Context) error {
	return d.lasting(ctx, "all executions have ended", `SELECT count(*) FROM executions WHERE finished_at IS NULL`)
}

// settle waits until the log has every event.
func (d *drill) settle(ctx context.Context) error {
	d.note("all executions have ended")
	for _, g := range []struct{ what, sql string }{
		{"the admitters have closed their books", `SELECT (SELECT count(*) FROM admission_feed) + (SELECT count(*) FROM limit_buckets WHERE in_use <> 0)
			+ (SELECT count(*) FROM admission_ledger WHERE (queued, running, slots, cpu_millis, memory_bytes, gpus) <> (0, 0, 0, 0, 0, 0))`},
		{"the outbox is drained", `SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`},
		{"the log is complete", `SELECT count(*) FROM executions e WHERE e.version > (
			SELECT count(DISTINCT event_id) FROM event_log l WHERE l.subject = e.id::text AND l.type LIKE 'millrace.execution.%')`},
		{"the views have caught up", `SELECT count(*) FROM executions e LEFT JOIN execution_views v ON v.id = e.id::text
			WHERE v.version IS DISTINCT FROM e.version`},
	} {
		if err := d.lasting(ctx, g.what, g.sql); err != nil {
			return err
		}
	}
	return nil
}

// lasting waits until a number has come down to 0, as long as it moves. When it does
// not, that is found, and nothing is waited for any more.
func (d *drill) lasting(ctx context.Context, what, sql string) error {
	if d.stuck {
		return nil
	}
	last, moved, told := int64(-1), time.Now(), time.Now()
	for {
		var left int64
		if err := d.in.db.QueryRow(ctx, sql).Scan(&left); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if left == 0 {
			return nil
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if time.Since(moved) > stuckAfter {
			d.find("progress", what, "nothing has moved for %s, %d left", stuckAfter, left)
			d.stuck = true
			return nil
		}
		if time.Since(told) > 10*time.Second {
			d.note("waiting until %s: %d left", what, left)
			told = time.Now()
		}
		if !pause(ctx, nil, 250*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// judge holds what was decided against what was promised.
func (d *drill) judge(ctx context.Context) error {
	h, err := history.Read(ctx, d.in.db, history.Log)
	if err != nil {
		return err
	}
	d.report.Found = append(d.report.Found, history.Judge(h, rules())...)
	d.report.Peaks = history.Peaks(h)
	d.rejections(h)
	there := make([]string, 0, len(h.Lives))
	admitters := map[string]bool{}
	for _, l := range h.Lives {
		there = append(there, l.ID)
		d.report.Ends[string(l.State)]++
		for _, e := range l.Events {
			if e.Type == history.Scheduled {
				d.report.Admissions++
				admitters[e.Admitter] = true
			}
		}
	}
	d.report.Admitters = len(admitters)
	slices.Sort(there)
	for _, id := range d.ids {
		if _, found := slices.BinarySearch(there, id); !found {
			d.find("forgotten", id, "was accepted and is gone")
		}
	}
	if len(there) != len(d.ids) {
		d.find("once", "executions", "there are %d, and %d were asked for", len(there), len(d.ids))
	}
	report, err := verify.Run(ctx, d.in.db, verify.Options{Settled: true, Timeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	if !report.OK() {
		d.find("verify", "database", "%s", report.Broken())
	}
	return nil
}

// alarms looks through the logs for what must not be in any.
func (d *drill) alarms() {
	for name, p := range d.in.members {
		log, err := p.Log()
		if err != nil {
			d.find("logs", name, "%v", err)
		}
		for _, alarm := range program.Alarms(log) {
			d.find("logs", name, "has %q", alarm)
		}
	}
}
