package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/workload"
)

// stuckAfter is for how long nothing may move once everything is mended. A stalled
// partition pauses for up to 60 s, and then its first batch may hold the slow
// entries of F2 together, which take long and are applied all at once.
const stuckAfter = 150 * time.Second

// goal is something that comes true by itself in a system that is alive: a number
// that goes down to 0.
type goal struct {
	what  string
	count func(ctx context.Context) (int64, error)
}

// counted is a goal whose number is in the database.
func (s *session) counted(what, sql string) goal {
	return goal{what, func(ctx context.Context) (int64, error) { return workload.Count(ctx, s.world.DB, sql) }}
}

const missing = `SELECT count(*) FROM chaos_facts f CROSS JOIN (VALUES %s) AS c(name, topic)
	WHERE f.topic = c.topic AND f.kind IN (%s)
	  AND NOT EXISTS (SELECT FROM chaos_ledger l WHERE l.consumer = c.name AND l.event_id = f.event_id)`

const (
	ledgers = `('ledger-tx', 'chaos_ledger'), ('ledger-batch', 'chaos_ledger'), ('blocked', 'chaos_blocked'), ('corpus', 'chaos_corpus'), ('moved', 'chaos_moved')`
	filing  = `('ledger-tx', 'chaos_ledger'), ('ledger-batch', 'chaos_ledger'), ('ledger-each', 'chaos_ledger'), ('corpus', 'chaos_corpus')`
)

// drained is what comes true without anybody's doing.
func (s *session) drained() []goal {
	return []goal{
		s.counted("events wait in the outbox", `SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`),
		s.counted("facts are not applied", fmt.Sprintf(missing, ledgers, `'plain', 'slow', 'stubborn'`)),
		s.noted("facts are not noted", workload.Plain, workload.Slow, workload.Stubborn),
		s.counted("poison has no dead letter", `SELECT count(*) FROM chaos_facts f CROSS JOIN (VALUES `+filing+`) AS c(name, topic)
			WHERE f.topic = c.topic AND f.kind IN ('poison', 'garbage') AND NOT EXISTS (
				SELECT FROM chaos_cures u WHERE u.event_id = f.event_id) AND NOT EXISTS (
				SELECT FROM dead_letters d WHERE d.consumer = c.name AND d.topic = f.topic AND (d.event_id = f.event_id
					OR convert_to(f.event_id, 'UTF8') = ANY (d.header_values)))`),
		s.counted("executions have not ended", `SELECT count(*) FROM executions WHERE finished_at IS NULL`),
		s.counted("executions differ from their views", `SELECT count(*) FROM executions e LEFT JOIN execution_views v ON v.id = e.id::text
			WHERE v.version IS DISTINCT FROM e.version OR v.state IS DISTINCT FROM e.state`),
		s.counted("executions have events that are not in the log", `SELECT count(*) FROM executions e WHERE e.version > (
			SELECT count(DISTINCT event_id) FROM event_log l WHERE l.subject = e.id::text AND l.type LIKE 'millrace.execution.%')`),
	}
}

// redriven is what comes true once all poison is cured and redriven.
func (s *session) redriven() []goal {
	return []goal{
		s.counted("events wait in the outbox", `SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`),
		s.counted("cured facts are not applied", fmt.Sprintf(missing, ledgers, `'poison'`)),
		s.noted("cured facts are not noted", workload.Poison),
	}
}

// noted is the goal that the consumer without a transaction has noted all facts of
// the kinds: its effects are in the log of effects alone.
func (s *session) noted(what string, kinds ...string) goal {
	return goal{what, func(ctx context.Context) (int64, error) {
		return workload.Unnoted(ctx, s.world.DB, s.world.NotesFile(), workload.LedgerEach, workload.Ledger, kinds)
	}}
}

// settle waits until everything that was begun has ended, redrives what had failed,
// and waits again.
func (s *session) settle(ctx context.Context) error {
	if !s.until(ctx, s.drained()) {
		return ctx.Err()
	}
	s.world.Note("everything has drained: poison is cured and redriven")
	if err := s.operator.Cure(ctx); err != nil {
		return err
	}
	rounds := 0
	again := s.counted("letters of cured facts are open", `SELECT count(*) FROM dead_letters WHERE status = 'OPEN' AND class = 'handler'`)
	for {
		if err := s.operator.RedriveAll(ctx); err != nil {
			return err
		}
		if !s.until(ctx, s.redriven()) {
			return ctx.Err()
		}
		// A letter can come late: its record was redriven before the cure, or lay in the
		// dead-letter topic.
		left, err := again.count(ctx)
		if err != nil {
			return err
		}
		if rounds++; left == 0 || rounds == 5 {
			return s.operator.DiscardGarbage(ctx)
		}
	}
}

// until waits for the goals. It reports what does not come true although nothing
// moves any more, and returns false.
func (s *session) until(ctx context.Context, goals []goal) bool {
	var last []int64
	moved, told := time.Now(), time.Now()
	for {
		left := make([]int64, len(goals))
		done := true
		for i, g := range goals {
			n, err := g.count(ctx)
			if err != nil {
				n = -1
			}
			left[i] = n
			done = done && n == 0
		}
		if done {
			return true
		}
		if !slices.Equal(left, last) {
			last, moved = left, time.Now()
		}
		if time.Since(moved) > stuckAfter {
			s.stuck(fmt.Sprintf("nothing moves for %s: %s", stuckAfter, unmet(goals, left)))
			return false
		}
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			s.world.Note("still waiting: %s", unmet(goals, left))
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func unmet(goals []goal, left []int64) string {
	var text []string
	for i, g := range goals {
		if left[i] != 0 {
			text = append(text, fmt.Sprintf("%d %s", left[i], g.what))
		}
	}
	return fmt.Sprint(text)
}
