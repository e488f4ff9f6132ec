package purge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
)

// The steps of a round.
const (
	stepExecutions = "executions"
	stepWorkflows  = "workflows"
	stepViews      = "views"
	stepOutbox     = "outbox"
	stepLetters    = "letters"
	stepEvents     = "events"
)

const (
	// settle is how long after a round that erased something the next one comes, which
	// erases what consumers that were behind have brought in meanwhile.
	settle = 2 * time.Second
	// lookAgain is how long a purge waits that can erase nothing more for now.
	lookAgain = 10 * time.Second
	// scanRows is how many rows of a table one chunk looks at, and mostErased how many
	// executions it erases.
	scanRows   = 20_000
	mostErased = 5 * chunkRows
)

// job is a purge under way, whose row is locked.
type job struct {
	id                  uuid.UUID
	user, tenant, actor string
	cancel              bool
	begun               time.Time
	step, cursor        string
	// found and waiting are those of the round, total is of all rounds.
	found          int64
	waiting, total Counts
	tx             pgx.Tx
	// erased is what the chunk has erased; toCancel are executions, and letters dead
	// letters, that it has found.
	erased            Counts
	toCancel, letters []string
}

// Advance takes the purge that is due longest a chunk further, in a transaction that
// the lease fences, and reports whether there was one.
func (s *Store) Advance(ctx context.Context, held *lease.Held) (bool, error) {
	var due bool
	err := s.cfg.Pool.QueryRow(ctx, `SELECT EXISTS (
		SELECT FROM purges WHERE state IN ('RUNNING', 'WAITING') AND next_at <= clock_timestamp())`).Scan(&due)
	if err != nil || !due {
		return false, err
	}
	var j *job
	err = s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if j, err = nextJob(ctx, tx); err != nil || j == nil {
			return err
		}
		return s.chunk(ctx, j)
	})
	if err != nil {
		return false, fmt.Errorf("purge: %w", err)
	}
	if j == nil {
		return false, nil
	}
	s.note(Counts{}, j.erased)
	return true, s.after(ctx, j)
}

// named is the user as the subject or key of what is no execution's: nil where one
// tenant is meant, since such do not say whose they are.
func (j *job) named() *string {
	if j.tenant != "" {
		return nil
	}
	return &j.user
}

func nextJob(ctx context.Context, tx pgx.Tx) (*job, error) {
	j := &job{tx: tx, erased: Counts{}}
	err := tx.QueryRow(ctx, `
		SELECT id, user_name, coalesce(tenant, ''), cancel, actor, step, cursor, found, waiting, erased, created_at FROM purges
		WHERE state IN ('RUNNING', 'WAITING') AND next_at <= clock_timestamp()
		ORDER BY next_at, id LIMIT 1 FOR UPDATE SKIP LOCKED`).
		Scan(&j.id, &j.user, &j.tenant, &j.cancel, &j.actor, &j.step, &j.cursor, &j.found, &j.waiting, &j.total, &j.begun)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return j, err
}

// chunk does a piece of the step, and notes how far it came.
func (s *Store) chunk(ctx context.Context, j *job) error {
	var next string
	var err error
	switch j.step {
	case stepExecutions:
		err, next = s.eraseExecutions(ctx, j), stepWorkflows
	case stepWorkflows:
		err, next = s.eraseWorkflows(ctx, j), stepViews
	case stepViews:
		err, next = j.eraseViews(ctx), stepOutbox
	case stepOutbox:
		err, next = j.eraseOutbox(ctx), stepLetters
	case stepLetters:
		err, next = j.findLetters(ctx), stepEvents
	default:
		err, next = j.eraseEvents(ctx), ""
	}
	if err != nil {
		return err
	}
	j.total.add(j.erased)
	j.found += j.erased.sum() + int64(len(j.letters))
	if j.cursor != "" {
		next = j.step // it is not over
	}
	if next == "" {
		return j.endRound(ctx)
	}
	_, err = j.tx.Exec(ctx, `
		UPDATE purges SET state = 'RUNNING', step = $2, cursor = $3, found = $4, waiting = $5, erased = $6, updated_at = clock_timestamp()
		WHERE id = $1`, j.id, next, j.cursor, j.found, j.waiting, j.total)
	return err
}

// endRound ends the purge when the round has found nothing, and has another one
// made otherwise.
func (j *job) endRound(ctx context.Context) error {
	state, pause := Running, settle
	switch {
	case j.found == 0 && j.waiting.sum() == 0:
		_, err := j.tx.Exec(ctx, `
			UPDATE purges SET state = 'DONE', user_name = NULL, rounds = rounds + 1, erased = $2, left_over = '{}',
				updated_at = clock_timestamp(), finished_at = clock_timestamp() WHERE id = $1`, j.id, j.total)
		return err
	case j.found == 0:
		state = Waiting
		if !j.cancel || j.waiting[NotEnded]+j.waiting[WorkflowsNotEnded] == 0 {
			pause = lookAgain // what is cancelled ends soon
		}
	}
	_, err := j.tx.Exec(ctx, `
		UPDATE purges SET state = $2, step = $3, cursor = '', rounds = rounds + 1, found = 0, waiting = '{}', left_over = $4, erased = $5,
			updated_at = clock_timestamp(), next_at = clock_timestamp() + $6::interval
		WHERE id = $1`, j.id, state, stepExecutions, j.waiting, j.total, pause)
	return err
}

// after does what a chunk has found to do that has transactions of its own. It is
// found again when it is not done.
func (s *Store) after(ctx context.Context, j *job) error {
	for _, id := range j.toCancel {
		if err := s.cfg.Cancel(ctx, id, j.actor, "purge"); err != nil {
			return fmt.Errorf("cancel execution %s: %w", id, err)
		}
	}
	if len(j.letters) == 0 {
		return nil
	}
	done, err := s.cfg.Letters.Delete(ctx, j.letters, j.actor, "purge")
	if err != nil {
		return err
	}
	s.note(Counts{}, Counts{DeadLetters: done.Changed})
	_, err = s.cfg.Pool.Exec(ctx, `
		UPDATE purges SET erased = jsonb_set(erased, ARRAY[$2::text], to_jsonb(coalesce((erased ->> $2)::bigint, 0) + $3::bigint)) WHERE id = $1`,
		j.id, DeadLetters, done.Changed)
	return err
}

// place is where the last page ended.
func (j *job) place() uuid.UUID {
	if j.cursor == "" {
		return uuid.Nil
	}
	return uuid.MustParse(j.cursor)
}

// pageEnds notes where a page ends, and reports whether a row is none to judge: it comes
// after as many as are erased at once, or it is the one that tells the end of the page.
func (j *job) pageEnds(due []uuid.UUID, id *uuid.UUID, end bool) bool {
	switch {
	case len(due) == mostErased:
		j.cursor = due[len(due)-1].String() // the rest comes with the next chunk
	case !end:
		return false
	case id != nil:
		j.cursor = id.String()
	}
	return true
}

// eraseExecutions erases the user's executions of a page of all. Those that have not
// ended, or whose events are parked, wait.
func (s *Store) eraseExecutions(ctx context.Context, j *job) error {
	rows, err := j.tx.Query(ctx, `
		WITH page AS MATERIALIZED (SELECT id, user_name, tenant, requested_at, finished_at FROM executions WHERE id > $1 ORDER BY id LIMIT $2)
		SELECT p.id, p.finished_at IS NOT NULL, EXISTS (
			SELECT FROM parked_lanes l WHERE l.key = convert_to(p.id::text, 'UTF8')), false
		FROM page p WHERE p.user_name = $3 AND ($4 = '' OR p.tenant = $4) AND p.requested_at <= $5
		UNION ALL SELECT max(id::text)::uuid, false, false, true FROM page
		ORDER BY 4, 1`, j.place(), scanRows, j.user, j.tenant, j.begun)
	if err != nil {
		return err
	}
	var due []uuid.UUID
	var id *uuid.UUID
	var ended, parked, end bool
	j.cursor = ""
	_, err = pgx.ForEachRow(rows, []any{&id, &ended, &parked, &end}, func() error {
		switch {
		case j.pageEnds(due, id, end):
		case !ended:
			j.waiting[NotEnded]++
			if j.cancel {
				j.toCancel = append(j.toCancel, id.String())
			}
		case parked:
			j.waiting[Parked]++
		default:
			due = append(due, *id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for chunk := range chunks(due, chunkRows) {
		locked, err := j.tx.Query(ctx, `SELECT id FROM executions WHERE id = ANY($1) AND finished_at IS NOT NULL FOR UPDATE SKIP LOCKED`, chunk)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(locked, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		counts, err := erase(ctx, j.tx, ids, &j.id)
		if err != nil {
			return err
		}
		j.erased.add(counts)
	}
	return nil
}

// eraseViews erases again what has come in about what this purge has erased, and
// views of the user's that have no execution.
func (j *job) eraseViews(ctx context.Context) error {
	if j.cursor == "" {
		tag, err := j.tx.Exec(ctx, `
			DELETE FROM execution_views v WHERE user_name = $1 AND ($2 = '' OR tenant = $2) AND requested_at <= $3
				AND NOT EXISTS (SELECT FROM executions e WHERE e.id::text = v.id)`, j.user, j.tenant, j.begun)
		if err != nil {
			return err
		}
		j.erased.add(Counts{Views: tag.RowsAffected()})
	}
	rows, err := j.tx.Query(ctx, `SELECT id FROM purged_executions WHERE purge = $1 AND id > $2 ORDER BY id LIMIT $3`, j.id, j.place(), againRows)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	j.cursor = ""
	if err != nil || len(ids) == 0 {
		return err
	}
	counts, err := run(ctx, j.tx, traces(), ids)
	if err != nil {
		return err
	}
	j.erased.add(counts)
	if len(ids) == againRows {
		j.cursor = ids[len(ids)-1].String()
	}
	return nil
}

// eraseOutbox erases what is published, or skipped, of a stretch of the outbox.
func (j *job) eraseOutbox(ctx context.Context) error {
	var from int64
	if j.cursor != "" {
		from, _ = strconv.ParseInt(j.cursor, 10, 64)
	} else if err := j.tx.QueryRow(ctx, `SELECT coalesce(min(seq), 0) FROM outbox_events`).Scan(&from); err != nil {
		return err
	}
	var erased, open, last int64
	err := j.tx.QueryRow(ctx, `
		WITH mine AS MATERIALIZED (
			SELECT o.seq, o.created_at, o.status FROM outbox_events o
			WHERE o.seq >= $1 AND o.seq < $1 + $2 AND (o.aggregate_id = $4 AND o.created_at <= $5
				OR o.aggregate_id IN (SELECT id::text FROM purged_executions WHERE purge = $3))),
		gone AS (DELETE FROM outbox_events o USING mine
			WHERE o.seq = mine.seq AND o.created_at = mine.created_at AND o.status IN ('PUBLISHED', 'SKIPPED') RETURNING 1)
		SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM mine WHERE status NOT IN ('PUBLISHED', 'SKIPPED')),
			(SELECT coalesce(max(seq), 0) FROM outbox_events)`, from, int64(scanRows), j.id, j.named(), j.begun).Scan(&erased, &open, &last)
	if err != nil {
		return err
	}
	j.erased.add(Counts{Outbox: erased})
	if open > 0 {
		j.waiting[Unpublished] += open
	}
	j.cursor = ""
	if from+scanRows <= last {
		j.cursor = strconv.FormatInt(from+scanRows, 10)
	}
	return nil
}

// findLetters finds the dead letters of a page of the purged executions, and those
// whose key is the user.
func (j *job) findLetters(ctx context.Context) error {
	rows, err := j.tx.Query(ctx, `
		WITH page AS MATERIALIZED (SELECT id FROM purged_executions WHERE purge = $1 AND id > $2 ORDER BY id LIMIT $3),
		keys AS (SELECT convert_to(id::text, 'UTF8') AS key FROM page UNION SELECT convert_to($4::text, 'UTF8'))
		SELECT d.id::text, d.status = 'OPEN' AND EXISTS (SELECT FROM parked_lanes WHERE head = d.id), ''
		FROM keys JOIN dead_letters d USING (key) WHERE d.status <> 'DELETED'
		UNION ALL SELECT '', false, coalesce(max(id::text), '') FROM page HAVING count(*) = $3`, j.id, j.place(), againRows, j.named())
	if err != nil {
		return err
	}
	j.cursor = ""
	var id, last string
	var head bool
	_, err = pgx.ForEachRow(rows, []any{&id, &head, &last}, func() error {
		switch {
		case last != "":
			j.cursor = last
		case head:
			j.waiting[HeadsOfLanes]++
		default:
			j.letters = append(j.letters, id)
		}
		return nil
	})
	return err
}

// eraseEvents erases events that name the user as their subject, or have the user's
// name as their key.
func (j *job) eraseEvents(ctx context.Context) error {
	tag, err := j.tx.Exec(ctx, `
		DELETE FROM event_log WHERE (topic_no, partition, "offset", time) IN (
			SELECT topic_no, partition, "offset", time FROM event_log WHERE subject = $1 AND recorded_at <= $2 LIMIT $3)`,
		j.named(), j.begun, pageRows)
	if err != nil {
		return err
	}
	j.erased.add(Counts{Events: tag.RowsAffected()})
	j.cursor = ""
	if tag.RowsAffected() == pageRows {
		j.cursor = "more"
	}
	return nil
}
