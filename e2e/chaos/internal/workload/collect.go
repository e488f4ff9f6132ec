package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// StoredFact is a fact as it lies in the database.
type StoredFact struct {
	check.Fact
	Topic topics.Topic
	// Gone facts can have no effect: see Oversize and Cut.
	Gone bool
}

// Facts reads all facts.
func Facts(ctx context.Context, db *pgxpool.Pool) ([]StoredFact, error) {
	rows, err := db.Query(ctx, `SELECT topic, key, seq, event_id, kind FROM chaos_facts ORDER BY topic, key, seq`)
	if err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (StoredFact, error) {
		var f StoredFact
		var topic, kind string
		err := row.Scan(&topic, &f.Key, &f.Seq, &f.EventID, &kind)
		f.Topic, f.Poison, f.Garbage = topics.Topic(topic), kind == Poison, kind == Garbage
		f.Gone = kind == Oversize || kind == Cut
		return f, err
	})
}

// Effects reads the ledger.
func Effects(ctx context.Context, db *pgxpool.Pool) ([]check.Effect, error) {
	rows, err := db.Query(ctx, `SELECT consumer, place, key, seq, event_id, partition, "offset", epoch, process FROM chaos_ledger ORDER BY place`)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (check.Effect, error) {
		var e check.Effect
		err := row.Scan(&e.Consumer, &e.Place, &e.Key, &e.Seq, &e.EventID, &e.Partition, &e.Offset, &e.Epoch, &e.Process)
		return e, err
	})
}

// Notes reads the log of effects. A last line that was cut off by a kill is what a
// note begun and not finished looks like, and is left out.
func Notes(path string) ([]check.Effect, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []check.Effect
	lines := bufio.NewScanner(f)
	for place := int64(1); lines.Scan(); place++ {
		var n Note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			continue
		}
		all = append(all, check.Effect{
			Consumer: n.Consumer, Place: place, Key: n.Key, Seq: n.Seq, EventID: n.EventID,
			Partition: n.Partition, Offset: n.Offset, Process: n.Process,
		})
	}
	return all, lines.Err()
}

// Unnoted counts the facts of the topic and the kinds that the log of effects at
// path does not have of the consumer.
func Unnoted(ctx context.Context, db *pgxpool.Pool, path, consumer string, topic topics.Topic, kinds []string) (int64, error) {
	notes, err := Notes(path)
	if err != nil {
		return 0, err
	}
	noted := map[string]bool{}
	for _, n := range notes {
		if n.Consumer == consumer {
			noted[n.EventID] = true
		}
	}
	rows, err := db.Query(ctx, `SELECT event_id FROM chaos_facts WHERE topic = $1 AND kind = ANY ($2)`, string(topic), kinds)
	if err != nil {
		return 0, fmt.Errorf("read facts: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var left int64
	for _, id := range ids {
		if !noted[id] {
			left++
		}
	}
	return left, err
}

// Outbox reads the rows of the outbox. Dead letters are left out: those of On
// consumers do not come from there.
func Outbox(ctx context.Context, db *pgxpool.Pool) ([]check.Sent, error) {
	rows, err := db.Query(ctx, `
		SELECT seq, id::text, topic, aggregate_type || '/' || aggregate_id, status = 'PUBLISHED', aggregate_type = 'redrive' OR republished_from IS NOT NULL
		FROM outbox_events WHERE topic <> $1`, string(topics.DeadLetters))
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (check.Sent, error) {
		var s check.Sent
		err := row.Scan(&s.Seq, &s.EventID, &s.Topic, &s.Aggregate, &s.Published, &s.Redriven)
		return s, err
	})
}

// Letters reads the dead letters.
func Letters(ctx context.Context, db *pgxpool.Pool) ([]check.Letter, error) {
	rows, err := db.Query(ctx, `
		SELECT consumer, topic, partition, "offset", key, value, header_keys, header_values, coalesce(event_id, ''), class, error
		FROM dead_letters`)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (check.Letter, error) {
		var l check.Letter
		var names, values [][]byte
		err := row.Scan(&l.Consumer, &l.Topic, &l.Partition, &l.Offset, &l.Key, &l.Value, &names, &values, &l.EventID, &l.Class, &l.Error)
		for i := range min(len(names), len(values)) {
			l.Headers = append(l.Headers, check.Header{Key: string(names[i]), Value: values[i]})
		}
		return l, err
	})
}

// Positions reads where the consumers are.
func Positions(ctx context.Context, db *pgxpool.Pool) ([]check.Position, error) {
	rows, err := db.Query(ctx, `SELECT consumer_group, topic, topic_id::text, partition, next_offset, owner_epoch FROM consumer_offsets`)
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (check.Position, error) {
		var p check.Position
		err := row.Scan(&p.Group, &p.Topic, &p.TopicID, &p.Partition, &p.Next, &p.Epoch)
		return p, err
	})
}

// Records reads the topics back, from their beginning to where they end now. Key,
// value and headers are kept of those only that keep asks for.
func Records(ctx context.Context, brokers []string, names []string, keep func(check.Logged) bool) ([]check.Logged, error) {
	cfg := kafka.Config{Brokers: brokers}
	end, err := endOffsets(ctx, cfg, names)
	if err != nil {
		return nil, err
	}
	tail, err := kafka.NewTail(ctx, cfg, kafka.TailConfig{Topics: names, From: kafka.StartEarliest})
	if err != nil {
		return nil, err
	}
	defer tail.Close()
	begin := tail.Positions()
	left := map[string]map[int32]bool{}
	count := 0
	for topic, partitions := range end {
		left[topic] = map[int32]bool{}
		for p, offset := range partitions {
			if offset > begin[topic][p] {
				left[topic][p] = true
				count++
			}
		}
	}
	var all []check.Logged
	if count == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = tail.Run(ctx, func(r topics.Record) error {
		all = append(all, logged(r, keep))
		if left[r.Topic][r.Partition] && r.Offset+1 >= end[r.Topic][r.Partition] {
			delete(left[r.Topic], r.Partition)
			if count--; count == 0 {
				cancel()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read topics back: %w", err)
	}
	if count > 0 {
		return nil, fmt.Errorf("read topics back: %w", ctx.Err())
	}
	return all, nil
}

// endOffsets are those of a tail that would begin now.
func endOffsets(ctx context.Context, cfg kafka.Config, names []string) (kafka.Offsets, error) {
	tail, err := kafka.NewTail(ctx, cfg, kafka.TailConfig{Topics: names})
	if err != nil {
		return nil, err
	}
	defer tail.Close()
	return tail.Positions(), nil
}

func logged(r topics.Record, keep func(check.Logged) bool) check.Logged {
	l := check.Logged{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	if id, ok := r.Header("ce_id"); ok {
		l.EventID = string(id)
	}
	if id, ok := r.Header(GarbageID); ok {
		l.EventID = string(id)
	}
	_, l.Targeted = r.Header(middleware.HeaderTarget)
	if !keep(l) {
		return l
	}
	l.Key, l.Value = r.Key, r.Value
	for _, h := range r.Headers {
		l.Headers = append(l.Headers, check.Header{Key: h.Key, Value: h.Value})
	}
	return l
}

// Count returns a number from the database.
func Count(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) (int64, error) {
	var n int64
	err := db.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

func texts(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
