package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// OutputChunk is a piece of one stream of one attempt.
type OutputChunk struct {
	Ref
	Stream executor.Stream
	// Index counts the chunks of the stream from 0; Offset is where the chunk
	// begins in it, in bytes.
	Index  int
	Offset int64
	Data   []byte
}

func (c OutputChunk) event() topics.ExecutionOutput {
	return topics.ExecutionOutput{
		ExecutionID: c.ID, Attempt: c.Attempt, Stream: string(c.Stream), Index: c.Index,
		Offset: c.Offset, Data: c.Data, Size: len(c.Data),
	}
}

// AppendOutput records pieces of output of one running attempt, in order, and
// renews its lease: while it has the row locked, no heartbeat can. It
// returns execution.ErrStaleAttempt or execution.ErrTerminal when the attempt is
// not the worker's any more.
func (s *Store) AppendOutput(
	ctx context.Context, worker string, ref Ref, chunks []OutputChunk, lease time.Duration,
) (Beat, error) {
	var beat Beat
	_, err := s.command(ctx, ref.ID, func(ctx context.Context, tx pgx.Tx, l loaded) error {
		if err := l.CheckHolder(worker, ref.Attempt); err != nil {
			return err
		}
		beat = Beat{Ref: ref, Cancel: l.Cancel != nil}
		fresh, err := insertOutputs(ctx, tx, chunks)
		if err != nil || len(fresh) == 0 {
			return err
		}
		for _, chunk := range fresh {
			l.Execution.Output(l.now, chunk.event())
		}
		l.Renew(l.now, lease)
		beat.Renewed = true
		return nil
	})
	if err != nil {
		return Beat{}, fmt.Errorf("append output: %w", err)
	}
	crash.At("worker.output_appended")
	return beat, nil
}

// insertOutputs writes chunks and returns those that were new. A chunk that is
// there already belongs to an append whose commit was in doubt and which is being
// repeated: its event has been recorded too.
func insertOutputs(ctx context.Context, tx pgx.Tx, chunks []OutputChunk) ([]OutputChunk, error) {
	if len(chunks) == 0 {
		return nil, nil
	}
	n := len(chunks)
	ids, streams := make([]string, n), make([]string, n)
	attempts, indexes := make([]int, n), make([]int, n)
	offsets, data := make([]int64, n), make([][]byte, n)
	for i, c := range chunks {
		ids[i], streams[i], attempts[i], indexes[i] = c.ID, string(c.Stream), c.Attempt, c.Index
		offsets[i], data[i] = c.Offset, c.Data
	}
	rows, err := tx.Query(ctx, `
		INSERT INTO execution_outputs (execution_id, attempt, stream, index, start_offset, data)
		SELECT * FROM unnest($1::text[]::uuid[], $2::integer[], $3::text[], $4::integer[], $5::bigint[], $6::bytea[])
		ON CONFLICT DO NOTHING RETURNING execution_id::text, stream, index`,
		ids, attempts, streams, indexes, offsets, data)
	if err != nil {
		return nil, fmt.Errorf("insert outputs: %w", err)
	}
	type place struct {
		id, stream string
		index      int
	}
	written := make(map[place]bool, n)
	var at place
	_, err = pgx.ForEachRow(rows, []any{&at.id, &at.stream, &at.index}, func() error {
		written[at] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("insert outputs: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(chunks), func(c OutputChunk) bool {
		return !written[place{c.ID, string(c.Stream), c.Index}]
	}), nil
}

// Output is the captured output of one attempt.
type Output struct {
	Attempt int
	// Final is true when the attempt has ended and no more output comes.
	Final bool
	// Chunks yields the pieces in order, stdout before stderr. It may be ranged
	// over once and reads from the database as it goes.
	Chunks iter.Seq2[OutputChunk, error]
}

// Output returns what an attempt wrote. Attempt 0 is the latest one; an empty
// stream means both.
func (s *Store) Output(ctx context.Context, id string, attempt int, stream executor.Stream) (Output, error) {
	e, err := s.Get(ctx, id)
	if err != nil {
		return Output{}, err
	}
	out := Output{Attempt: attempt}
	if attempt == 0 {
		out.Attempt = e.Attempt
	}
	out.Final = e.State.Terminal() || out.Attempt < e.Attempt
	ref := Ref{ID: id, Attempt: out.Attempt}
	out.Chunks = func(yield func(OutputChunk, error) bool) { s.readChunks(ctx, ref, stream, yield) }
	return out, nil
}

// readChunks reads chunks a few at a time, so that a large output is never in
// memory as a whole.
func (s *Store) readChunks(
	ctx context.Context, ref Ref, stream executor.Stream, yield func(OutputChunk, error) bool,
) {
	const page = 16 // chunks of at most 64 KiB
	streams := []executor.Stream{executor.Stdout, executor.Stderr}
	if stream != "" {
		streams = []executor.Stream{stream}
	}
	for _, stream := range streams {
		next := 0
		for {
			chunks, err := s.chunkPage(ctx, ref, stream, next, page)
			if err != nil {
				yield(OutputChunk{}, fmt.Errorf("read output: %w", err))
				return
			}
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
				next = c.Index + 1
			}
			if len(chunks) < page {
				break
			}
		}
	}
}

func (s *Store) chunkPage(
	ctx context.Context, ref Ref, stream executor.Stream, from, limit int,
) ([]OutputChunk, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT index, start_offset, data FROM execution_outputs
		WHERE execution_id = $1::text::uuid AND attempt = $2 AND stream = $3 AND index >= $4
		ORDER BY index LIMIT $5`, ref.ID, ref.Attempt, string(stream), from, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OutputChunk, error) {
		c := OutputChunk{Ref: ref, Stream: stream}
		return c, row.Scan(&c.Index, &c.Offset, &c.Data)
	})
}
