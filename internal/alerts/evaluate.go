package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/secret"
)

// Kind says what an alert is about.
type Kind string

// The kinds.
const (
	// PartitionStalled: a partition has been stalled for longer than StallAfter.
	PartitionStalled Kind = "partition_stalled"
	// OutboxFailed: the broker refused an event for good; its aggregate waits.
	OutboxFailed Kind = "outbox_failed"
	// DeadLetters: there are DeadLetters open dead letters, or more.
	DeadLetters Kind = "dead_letters"
	// NeedsAttention: a compensation of a saga or workflow could not be brought about, and
	// nobody has decided for AttentionAfter what to do.
	NeedsAttention Kind = "needs_attention"
	// TriggerStalled: a trigger, or a partition of one, has stood for longer than its
	// alert_after.
	TriggerStalled Kind = "trigger_stalled"
	// TriggerResting: a trigger that is switched off will lose its place, or cannot be
	// looked at.
	TriggerResting Kind = "trigger_resting"
)

// condition is something that is true now and worth telling.
type condition struct {
	key     string
	kind    Kind
	summary string
	details map[string]any
	since   time.Time
}

// maxConditions bounds what is told of one kind: if everything is stalled, it is
// one trouble and not a thousand.
const maxConditions = 100

// evaluate finds what is true now.
func (w *Watcher) evaluate(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	var all []condition
	for _, find := range []func(context.Context, pgx.Tx) ([]condition, error){w.stalls, w.failedEvents, w.deadLetters, w.attention, triggers} {
		found, err := find(ctx, tx)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (w *Watcher) stalls(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	stalls, err := consumers.LongStalls(ctx, tx, w.cfg.StallAfter, maxConditions)
	if err != nil {
		return nil, err
	}
	found := make([]condition, len(stalls))
	for i, s := range stalls {
		details := map[string]any{
			"consumer": s.Consumer, "group": s.Group, "topic": s.Topic, "partition": s.Partition, "state": s.State,
			"owner": s.Instance, "tries": s.Tries, "class": s.Cause.Class, "error": s.Cause.Error,
		}
		if s.Cause.Code != "" {
			details["code"] = s.Cause.Code
		}
		if s.Offset != nil {
			details["offset"] = *s.Offset
		}
		found[i] = condition{
			key:  fmt.Sprintf("%s/%s/%s/%d", PartitionStalled, s.Consumer, s.Topic, s.Partition),
			kind: PartitionStalled, details: details, since: s.Since,
			summary: fmt.Sprintf("consumer %s does not go on in partition %d of %s", s.Consumer, s.Partition, s.Topic),
		}
	}
	return found, nil
}

func (w *Watcher) failedEvents(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	rows, err := tx.Query(ctx, `
		SELECT topic, count(*), min(created_at), coalesce((array_agg(last_error ORDER BY seq))[1], '') FROM outbox_events
		WHERE attempts > 0 AND status IN ('PENDING', 'FAILED') AND status = 'FAILED' GROUP BY topic ORDER BY topic LIMIT $1`, maxConditions)
	if err != nil {
		return nil, fmt.Errorf("look for failed outbox events: %w", err)
	}
	var found []condition
	var topic, text string
	var events int64
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&topic, &events, &since, &text}, func() error {
		found = append(found, condition{
			key: fmt.Sprintf("%s/%s", OutboxFailed, topic), kind: OutboxFailed, since: since,
			summary: fmt.Sprintf("the broker refused events for topic %s for good", topic),
			details: map[string]any{"topic": topic, "events": events, "error": secret.Redact(text)},
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for failed outbox events: %w", err)
	}
	return found, nil
}

func (w *Watcher) deadLetters(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	if w.cfg.DeadLetters <= 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT consumer, count(*) FROM dead_letters WHERE status = 'OPEN' GROUP BY consumer ORDER BY 2 DESC, 1`)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	byConsumer := map[string]int64{}
	var consumer string
	var n, total int64
	_, err = pgx.ForEachRow(rows, []any{&consumer, &n}, func() error {
		total += n
		if len(byConsumer) < maxConditions {
			byConsumer[consumer] = n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	if total < int64(w.cfg.DeadLetters) {
		return nil, nil
	}
	return []condition{{
		key: string(DeadLetters), kind: DeadLetters, since: w.cfg.Now(),
		summary: fmt.Sprintf("%d dead letters are open", total),
		details: map[string]any{"open": total, "threshold": w.cfg.DeadLetters, "by_consumer": byConsumer},
	}}, nil
}

// attention looks at the instances that need attention, the oldest first.
func (w *Watcher) attention(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	rows, err := tx.Query(ctx, `
		SELECT id::text, kind, definition_id, definition_version, updated_at,
			coalesce(state->'stuck'->>'step_id', ''), coalesce(state->'stuck'->>'code', ''), coalesce(state->'stuck'->>'message', '')
		FROM wf_instances WHERE trouble = 'NEEDS_ATTENTION' AND updated_at <= clock_timestamp() - make_interval(secs => $1)
		ORDER BY updated_at, id LIMIT $2`, w.cfg.AttentionAfter.Seconds(), maxConditions)
	if err != nil {
		return nil, fmt.Errorf("look for instances that need attention: %w", err)
	}
	var found []condition
	var id, kind, definition, step, code, text string
	var version int
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &kind, &definition, &version, &since, &step, &code, &text}, func() error {
		found = append(found, condition{
			key: fmt.Sprintf("%s/%s", NeedsAttention, id), kind: NeedsAttention, since: since,
			summary: fmt.Sprintf("%s %s of %s could not be undone and needs a decision", kind, id, definition),
			details: map[string]any{
				"id": id, "kind": kind, "definition": definition, "version": version, "step": step, "code": code, "error": secret.Redact(text),
			},
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for instances that need attention: %w", err)
	}
	return found, nil
}

const (
	openAlert = `
INSERT INTO alerts (key, kind, summary, details, since) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (key) WHERE status = 'FIRING' DO NOTHING`

	// What nobody can have been told of needs no end either.
	resolveAlerts = `
UPDATE alerts SET status = 'RESOLVED', resolved_at = clock_timestamp(), next_attempt_at = clock_timestamp(), last_error = NULL,
    attempts = 0, sent_status = CASE WHEN attempts = 0 THEN 'RESOLVED' ELSE sent_status END
WHERE status = 'FIRING' AND key <> ALL ($1)
RETURNING key`

	forgetAlerts = `DELETE FROM alerts WHERE status = 'RESOLVED' AND resolved_at < clock_timestamp() - interval '30 days'`
)

// note opens and resolves alerts, so that those that are FIRING are the conditions.
func (w *Watcher) note(ctx context.Context, tx pgx.Tx, now []condition) error {
	keys := make([]string, len(now))
	for i, c := range now {
		keys[i] = c.key
		details, err := json.Marshal(c.details)
		if err != nil {
			return fmt.Errorf("encode alert %s: %w", c.key, err)
		}
		tag, err := tx.Exec(ctx, openAlert, c.key, string(c.kind), c.summary, details, c.since)
		if err != nil {
			return fmt.Errorf("open alert %s: %w", c.key, err)
		}
		if tag.RowsAffected() > 0 {
			w.cfg.Log.WarnContext(ctx, "alert", "key", c.key, "summary", c.summary)
		}
	}
	rows, err := tx.Query(ctx, resolveAlerts, keys)
	if err != nil {
		return fmt.Errorf("resolve alerts: %w", err)
	}
	var key string
	_, err = pgx.ForEachRow(rows, []any{&key}, func() error {
		w.cfg.Log.InfoContext(ctx, "alert resolved", "key", key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("resolve alerts: %w", err)
	}
	if _, err := tx.Exec(ctx, forgetAlerts); err != nil {
		return fmt.Errorf("forget old alerts: %w", err)
	}
	return nil
}
