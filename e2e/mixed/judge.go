package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/testenv/program"
)

// stuckAfter is for how long nothing may move before a run gives up: more than all
// leases and backoffs.
const stuckAfter = 90 * time.Second

// settle waits until all that was asked for has ended and everybody knows of it.
func (d *drill) settle(ctx context.Context) error {
	for _, g := range []struct{ what, sql string }{
		{"all sagas rest", `SELECT count(*) FROM wf_instances WHERE definition_id = '` + tripName + `' AND status IN ('ACTIVE', 'WAITING', 'COMPENSATING')`},
		{"all sagas have ended", `SELECT count(*) FROM wf_instances WHERE definition_id = '` + tripName + `' AND ended_at IS NULL`},
		{"all instances have ended", `SELECT count(*) FROM wf_instances WHERE ended_at IS NULL`},
		{"all executions have ended", `SELECT count(*) FROM executions WHERE finished_at IS NULL`},
		{"the outbox is drained", `SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`},
		{"the log is complete", `SELECT count(*) FROM executions e WHERE e.version > (
			SELECT count(DISTINCT event_id) FROM event_log l WHERE l.subject = e.id::text AND l.type LIKE 'millrace.execution.%')`},
		{"the views have caught up", `SELECT count(*) FROM executions e LEFT JOIN execution_views v ON v.id = e.id::text WHERE v.version IS DISTINCT FROM e.version`},
		{"the data index has caught up", `SELECT count(*) FROM wf_instances i LEFT JOIN workflow_instances w ON w.id = i.id::text
			WHERE i.definition_id = 'mixed' AND w.status IS DISTINCT FROM 'COMPLETED'`},
	} {
		if err := d.lasting(ctx, g.what, g.sql); err != nil {
			return err
		}
		d.flows.resolve(ctx) // what the first one found to rest
	}
	return nil
}

// lasting waits until a number has come down to 0, as long as it moves.
func (d *drill) lasting(ctx context.Context, what, sql string) error {
	last, moved := int64(-1), time.Now()
	for {
		left, err := d.in.count(ctx, sql)
		switch {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case left == 0:
			return nil
		case left != last:
			last, moved = left, time.Now()
		case time.Since(moved) > stuckAfter:
			d.find("nothing has moved for %s while waiting until %s: %d left", stuckAfter, what, left)
			return nil
		}
		if !pause(ctx, 250*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// judge holds what is left against what was promised.
func (d *drill) judge(ctx context.Context) error {
	d.note("all is settled; asked again for %v", d.load.whys)
	if err := d.judgeExecutions(ctx); err != nil {
		return err
	}
	for what, sql := range map[string]string{
		"dead letters":                      `SELECT consumer || ': ' || error FROM dead_letters`,
		"events that were not published":    `SELECT topic || ' ' || aggregate_id || ' ' || coalesce(last_error, '') FROM outbox_events WHERE status = 'FAILED'`,
		"instances without their two jobs":  `SELECT id::text FROM wf_instances WHERE definition_id = 'mixed' AND 2 <> (SELECT count(*) FROM mixed_jobs WHERE instance = id::text)`,
		"steps with two jobs":               `SELECT instance || ' ' || step || ': ' || job FROM mixed_jobs WHERE job LIKE '% %'`,
		"instances that have not completed": `SELECT id || ' ' || status FROM wf_instances WHERE definition_id = 'mixed' AND status <> 'COMPLETED'`,
		"sagas with an end that is not theirs": `SELECT id || ' ' || status || ' ' || coalesce(did, '') FROM wf_instances LEFT JOIN LATERAL (
			SELECT string_agg(what, ' ' ORDER BY what) AS did FROM mixed_sagas WHERE saga = id::text) e ON true
			WHERE definition_id = '` + tripName + `' AND (status, did) NOT IN (('COMPLETED', 'book pay'), ('COMPENSATED', 'book unbook'), ('CANCELLED', 'book'), ('FAILED', 'book'))`,
	} {
		rows, err := d.texts(ctx, sql)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			d.find("%d %s: %s", len(rows), what, strings.Join(rows[:min(3, len(rows))], "; "))
		}
	}
	if n, err := d.in.count(ctx, `SELECT count(*) FROM wf_instances`); err != nil {
		return err
	} else if d.instances = int(n); d.instances != len(d.flows.started)+len(d.flows.sagas)+len(d.flows.started) {
		d.find("%d instances and sagas, and %d were started", n, 2*len(d.flows.started)+len(d.flows.sagas))
	}
	h, err := history.Read(ctx, d.in.db, history.Log)
	if err != nil {
		return err
	}
	for _, v := range history.Judge(h, history.Rules{Settled: true}) {
		d.find("%s", v)
	}
	for _, v := range []version{older, newer} {
		out, code, err := d.in.command(ctx, v, "verify", "--settled", "--timeout", "5m")
		if err != nil {
			return err
		}
		if code != 0 {
			d.find("millrace verify --settled of the %s version:\n%s", v, out)
		}
	}
	d.alarms()
	return d.sagaViews(ctx)
}

// judgeExecutions holds the executions against what the API answered and what the
// programs noted.
func (d *drill) judgeExecutions(ctx context.Context) error {
	states := map[string]string{}
	rows, err := d.texts(ctx, `SELECT id || ' ' || state || ' ' || attempt FROM executions`)
	if err != nil {
		return err
	}
	d.executions = len(rows)
	attempts := map[string]int{}
	for _, row := range rows {
		var id, state string
		var attempt int
		if _, err := fmt.Sscan(row, &id, &state, &attempt); err != nil {
			return err
		}
		states[id], attempts[id] = state, attempt
	}
	for key, id := range d.load.ids {
		if got := states[id]; got != d.load.ends[key] {
			d.find("%s of %s is %q, and had to become %s", id, key, got, d.load.ends[key])
		}
	}
	if asked := int(d.load.asked.Load()); len(rows) != asked || len(d.load.ids) != asked {
		d.find("%d executions were asked for, %d accepted, and there are %d", asked, len(d.load.ids), len(rows))
	}
	text, err := os.ReadFile(d.load.trace())
	if err != nil {
		return err
	}
	ran := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if ran[line]++; ran[line] > 1 {
			d.find("attempt %q ran twice", line)
		}
	}
	for id, state := range states {
		if state == client.Completed && attempts[id] == 0 {
			d.find("%s has completed without an attempt", id)
		}
	}
	return nil
}

func (d *drill) texts(ctx context.Context, sql string) (all []string, err error) {
	rows, err := d.in.db.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text *string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if text != nil {
			all = append(all, *text)
		}
	}
	return all, rows.Err()
}

// alarms looks through the logs for what must not be in any.
func (d *drill) alarms() {
	for _, m := range d.in.everyone {
		log, err := m.Log()
		if err != nil {
			d.find("%v", err)
		}
		for _, alarm := range program.Alarms(log) {
			d.find("%s has %q: see %s", m.name, alarm, m.LogFile())
		}
	}
}

// behind are the rows of saga_views that do not say what became of the saga.
const behind = `SELECT count(*) FROM wf_instances i LEFT JOIN saga_views v ON v.id = i.id::text
	WHERE i.definition_id = '` + tripName + `' AND (v.status IS NULL OR v.status IN ('RUNNING', 'COMPENSATING', 'NEEDS_ATTENTION'))`

// sagaViews has the view of sagas built anew: processes of the older version passed over
// the events that they did not know.
func (d *drill) sagaViews(ctx context.Context) error {
	left, err := d.in.count(ctx, behind)
	if err != nil || left == 0 {
		return err
	}
	c, ok := d.load.anyAPI(newer)
	if !ok {
		d.find("no API is left")
		return nil
	}
	d.note("%d sagas look as the older version left them: sagas-view is rebuilt", left)
	if _, err := c.StartRebuild(ctx, "sagas-view", client.NewRebuild{}); err != nil {
		return err
	}
	return d.lasting(ctx, "the view of sagas is rebuilt", behind)
}
