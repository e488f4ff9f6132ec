package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ErrNoDatabase is what queries return in a handler that is run without WithTx.
var ErrNoDatabase = errors.New("pipelinetest: there is no database to answer; pass WithTx")

// Statement is an SQL statement that a handler executed.
type Statement struct {
	SQL  string
	Args []any
}

// letterBox keeps dead letters, of either way of filing them.
type letterBox struct {
	filed []DeadLetter
	fail  error
	// published holds the records of On consumers.
	published []topics.Record
}

// PublishRecords implements pipeline.RecordPublisher.
func (b *letterBox) PublishRecords(_ context.Context, records []topics.Record) []error {
	if b.fail != nil {
		errs := make([]error, len(records))
		for i := range errs {
			errs[i] = b.fail
		}
		return errs
	}
	for _, r := range records {
		b.published = append(b.published, r)
		letter, err := middleware.ParseLetter(r)
		if err != nil {
			return []error{err}
		}
		b.filed = append(b.filed, *letter)
	}
	return nil
}

// memoryStore is a pipeline.Store without durability. It takes no heed of the
// partition, since there is only one.
type memoryStore struct {
	letters *letterBox
	tx      pgx.Tx

	next, epoch int64
	processed   map[pipeline.Identity]bool
	outbox      []pipeline.OutboxEvent
	statements  []Statement
	// lanes are the keys that wait behind a dead letter, parked what waits.
	lanes  map[string]bool
	parked []topics.Record

	failCommit error
	commitDone bool
}

// Take implements pipeline.Store.
func (s *memoryStore) Take(context.Context, pipeline.Partition) (pipeline.Position, error) {
	if s.epoch == 0 {
		s.next, s.processed = pipeline.NoOffset, make(map[pipeline.Identity]bool)
		s.lanes = make(map[string]bool)
	}
	s.epoch++
	return pipeline.Position{Next: s.next, Epoch: s.epoch}, nil
}

// Apply implements pipeline.Store.
func (s *memoryStore) Apply(ctx context.Context, w pipeline.Work) ([]pipeline.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	if w.Epoch != s.epoch {
		return nil, fmt.Errorf("epoch %d, the owner's is %d: %w", w.Epoch, s.epoch, pipeline.ErrFenced)
	}
	verdicts := make([]pipeline.Verdict, len(w.Entries))
	var fresh []int
	var filed []DeadLetter
	var parked []topics.Record
	keys, lanes := make(map[pipeline.Identity]bool), maps.Clone(s.lanes)
	for i, e := range w.Entries {
		switch {
		case e.Offset < s.next:
			verdicts[i] = pipeline.Repeated
		case e.Record.Key != nil && lanes[string(e.Record.Key)]:
			verdicts[i] = pipeline.Parked
			parked = append(parked, *e.Record)
		case e.Letter != nil:
			filed = append(filed, *e.Letter)
			if w.Parking.Open && e.Record.Key != nil {
				lanes[string(e.Record.Key)] = true
			}
		case e.Identity != nil && (s.processed[*e.Identity] || keys[*e.Identity]):
			verdicts[i] = pipeline.Repeated
		default:
			if e.Identity != nil {
				keys[*e.Identity] = true
			}
			fresh = append(fresh, i)
		}
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	if len(fresh) > 0 {
		err = w.Effect(ctx, tx, fresh)
	}
	for i, e := range w.Entries {
		if err == nil && e.Letter != nil && e.With != nil && verdicts[i] == pipeline.Fresh {
			err = pipeline.Infrastructure(e.With(ctx, tx))
		}
	}
	if err == nil && len(filed) > 0 && s.letters.fail != nil {
		err = pipeline.Infrastructure(s.letters.fail)
	}
	if err != nil {
		return nil, errors.Join(err, tx.rollback(ctx))
	}
	if s.failCommit != nil {
		err, s.failCommit = s.failCommit, nil
		if !s.commitDone {
			return nil, errors.Join(err, tx.rollback(ctx))
		}
	}
	if err := errors.Join(tx.release(ctx)); err != nil {
		return nil, err
	}
	for key := range keys {
		s.processed[key] = true
	}
	s.next, s.lanes, s.parked = max(s.next, w.Next), lanes, append(s.parked, parked...)
	s.outbox = append(s.outbox, tx.outbox...)
	s.statements = append(s.statements, tx.statements...)
	s.letters.filed = append(s.letters.filed, filed...)
	return verdicts, err
}

func (s *memoryStore) begin(ctx context.Context) (*memoryTx, error) {
	tx := &memoryTx{}
	if s.tx == nil {
		return tx, nil
	}
	var err error
	if tx.db, err = s.tx.Begin(ctx); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return tx, nil
}

// memoryTx is a transaction over a savepoint, or over nothing.
type memoryTx struct {
	db         pgx.Tx // nil without a database
	outbox     []pipeline.OutboxEvent
	statements []Statement
}

func (t *memoryTx) rollback(ctx context.Context) error {
	if t.db == nil {
		return nil
	}
	return t.db.Rollback(context.WithoutCancel(ctx))
}

func (t *memoryTx) release(ctx context.Context) error {
	if t.db == nil {
		return nil
	}
	return t.db.Commit(ctx)
}

// PgxTx is what pipeline.PgxTx finds.
func (t *memoryTx) PgxTx() (pgx.Tx, bool) { return t.db, t.db != nil }

func (t *memoryTx) Append(_ context.Context, events ...pipeline.OutboxEvent) error {
	t.outbox = append(t.outbox, events...)
	return nil
}

func (t *memoryTx) record(sql string, args []any) {
	t.statements = append(t.statements, Statement{SQL: sql, Args: slices.Clone(args)})
}

// Exec records the statement and reports one affected row.
func (t *memoryTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.db != nil {
		return t.db.Exec(ctx, sql, args...)
	}
	t.record(sql, args)
	return pgconn.NewCommandTag("UPDATE 1"), nil
}

// Query returns ErrNoDatabase without a database.
func (t *memoryTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.db != nil {
		return t.db.Query(ctx, sql, args...)
	}
	return nil, ErrNoDatabase
}

// QueryRow returns a row whose Scan fails with ErrNoDatabase without a database.
func (t *memoryTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.db != nil {
		return t.db.QueryRow(ctx, sql, args...)
	}
	return noRow{}
}

// SendBatch records the statements; reading results fails with ErrNoDatabase.
func (t *memoryTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.db != nil {
		return t.db.SendBatch(ctx, b)
	}
	for _, q := range b.QueuedQueries {
		t.record(q.SQL, q.Arguments)
	}
	return &noResults{left: b.Len()}
}

// CopyFrom records the rows as one statement.
func (t *memoryTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if t.db != nil {
		return t.db.CopyFrom(ctx, table, columns, rows)
	}
	st := Statement{SQL: "COPY " + table.Sanitize()}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return 0, err
		}
		st.Args = append(st.Args, values)
	}
	t.statements = append(t.statements, st)
	return int64(len(st.Args)), rows.Err()
}

type noRow struct{}

func (noRow) Scan(...any) error { return ErrNoDatabase }

type noResults struct{ left int }

func (r *noResults) Exec() (pgconn.CommandTag, error) {
	if r.left == 0 {
		return pgconn.CommandTag{}, errors.New("pipelinetest: the batch has no more statements")
	}
	r.left--
	return pgconn.NewCommandTag("UPDATE 1"), nil
}
func (r *noResults) Query() (pgx.Rows, error) { return nil, ErrNoDatabase }
func (r *noResults) QueryRow() pgx.Row        { return noRow{} }
func (r *noResults) Close() error             { return nil }
func (r *noResults) Tx() pgx.Tx               { return nil }
