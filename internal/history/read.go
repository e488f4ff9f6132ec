package history

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/topics"
)

// Querier runs queries: a pool, a connection, a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Source is where the events are read from.
type Source int

// The sources.
const (
	// Outbox holds every event from the moment of its commit, for as long as its days
	// are kept.
	Outbox Source = iota
	// Log is what the recorder has read from Kafka: complete once all has settled, and
	// kept for longer.
	Log
)

// Read reads all executions and their events. Run it in a transaction of level
// REPEATABLE READ, or when nothing is under way: rows and events are read one after
// the other.
func Read(ctx context.Context, db Querier, source Source) (History, error) {
	lives, err := readRows(ctx, db)
	if err != nil {
		return History{}, fmt.Errorf("read executions: %w", err)
	}
	var h History
	byID := make(map[string]*Life, len(lives))
	for _, l := range lives {
		byID[l.ID] = l
	}
	h.Lives = lives
	add := func(id string, e Event) {
		l := byID[id]
		if l == nil {
			l = &Life{ID: id}
			byID[id] = l
			h.Lives = append(h.Lives, l)
		}
		if e.Type == Task {
			l.Tasks = append(l.Tasks, e)
		} else {
			l.Events = append(l.Events, e)
		}
	}
	if source == Log {
		err = readLog(ctx, db, add)
	} else {
		err = readOutbox(ctx, db, add)
	}
	if err != nil {
		return History{}, fmt.Errorf("read events: %w", err)
	}
	for _, l := range h.Lives {
		l.arrange()
	}
	return h, nil
}

func readRows(ctx context.Context, db Querier) ([]*Life, error) {
	rows, err := db.Query(ctx, `SELECT id::text, request, coalesce(concurrency_seq, 0), state, attempt, version FROM executions ORDER BY id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Life, error) {
		var l Life
		var state string
		err := row.Scan(&l.ID, &l.Request, &l.Place, &state, &l.Attempt, &l.Version)
		l.State = execution.State(state)
		return &l, err
	})
}

// dataOf is the data of an event as SQL, left out where it is nothing but output.
func dataOf(eventType, data string) string {
	return `CASE WHEN ` + eventType + ` <> 'millrace.execution.output.v1' THEN ` + data + ` ELSE '{}'::bytea END`
}

// readLog reads the log, in which an event may lie more than once.
func readLog(ctx context.Context, db Querier, add func(id string, e Event)) error {
	rows, err := db.Query(ctx, `
		SELECT subject, type, coalesce(event_id, ''), sequence, time, `+dataOf("type", "value")+` FROM event_log
		WHERE subject IS NOT NULL AND (type LIKE 'millrace.execution.%' OR type LIKE 'millrace.pod.%') AND value IS NOT NULL`)
	if err != nil {
		return err
	}
	var (
		subject, eventType, id string
		sequence               int64
		at                     time.Time
		value                  []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&subject, &eventType, &id, &sequence, &at, &value}, func() error {
		e, err := decodeEvent(eventType, id, sequence, at, value)
		if err == nil {
			add(subject, e)
		}
		return err
	})
	return err
}

// readOutbox reads the outbox, without the copies of a republish.
func readOutbox(ctx context.Context, db Querier, add func(id string, e Event)) error {
	rows, err := db.Query(ctx, `
		SELECT aggregate_id, event_type, id::text, `+dataOf("event_type", "payload")+`, headers FROM outbox_events
		WHERE aggregate_type = 'execution' AND (event_type LIKE 'millrace.execution.%' OR event_type LIKE 'millrace.pod.%') AND republished_from IS NULL`)
	if err != nil {
		return err
	}
	var subject, eventType, id string
	var payload, encoded []byte
	_, err = pgx.ForEachRow(rows, []any{&subject, &eventType, &id, &payload, &encoded}, func() error {
		headers, err := outbox.DecodeHeaders(encoded)
		if err != nil {
			return err
		}
		sequence, at, err := stamps(headers)
		if err != nil {
			return fmt.Errorf("event %s: %w", id, err)
		}
		e, err := decodeEvent(eventType, id, sequence, at, payload)
		if err == nil {
			add(subject, e)
		}
		return err
	})
	return err
}

// stamps reads place and time of an event from its headers.
func stamps(headers []topics.Header) (sequence int64, at time.Time, err error) {
	for _, h := range headers {
		switch h.Key {
		case "ce_sequence":
			sequence, err = strconv.ParseInt(string(h.Value), 10, 64)
		case "ce_time":
			at, err = time.Parse(time.RFC3339Nano, string(h.Value))
		}
		if err != nil {
			return 0, time.Time{}, err
		}
	}
	return sequence, at, nil
}
