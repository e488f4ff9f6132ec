package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
)

var (
	// ErrNotFound: there is no value of that id: it was removed after its time, or
	// never kept.
	ErrNotFound = errors.New("result not found")
	// ErrElsewhere: the value is kept where this process cannot read it.
	ErrElsewhere = errors.New("result is kept where this process cannot read it")
	// ErrDamaged: the value is not what was kept.
	ErrDamaged = errors.New("result is damaged")
)

// Blobs keeps values by their ids. Ids are never used twice.
type Blobs interface {
	// Name is how rows tell where a value is.
	Name() string
	// Write keeps a value durably, in the transaction or before it returns. Writing an
	// id again replaces what is there.
	Write(ctx context.Context, tx pgx.Tx, id string, value []byte) error
	// Open reads a value. A missing one is ErrNotFound.
	Open(ctx context.Context, id string) (io.ReadCloser, error)
	// Remove removes values whose rows are gone; missing ones are no error.
	Remove(ctx context.Context, ids []string) error
	// Old returns the ids of values that were written before that time, if they can
	// exist without their rows.
	Old(ctx context.Context, before time.Time) ([]string, error)
}

// Store keeps values. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	into  Blobs
	blobs map[string]Blobs
}

// New returns a store that keeps new values with into, and reads those that others
// have kept, too.
func New(pool *pgxpool.Pool, into Blobs, others ...Blobs) *Store {
	s := &Store{pool: pool, into: into, blobs: make(map[string]Blobs)}
	for _, b := range append(others, into) {
		s.blobs[b.Name()] = b
	}
	return s
}

// Refer makes the reference of a value. Put keeps the value under it.
func Refer(value []byte) (executor.ValueReference, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return executor.ValueReference{}, fmt.Errorf("make id of result: %w", err)
	}
	sum := sha256.Sum256(value)
	return executor.ValueReference{ID: id.String(), Bytes: int64(len(value)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// Put keeps the value of an attempt. When it returns nil the value is durable. An
// error means that it may be; Put can be repeated with the same reference.
func (s *Store) Put(ctx context.Context, executionID string, attempt int, ref executor.ValueReference, value []byte) error {
	sum, err := hex.DecodeString(ref.SHA256)
	if err != nil {
		return fmt.Errorf("put result: %w", err)
	}
	err = postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO execution_results (id, execution_id, attempt, bytes, sha256, kept_in)
			VALUES ($1::text::uuid, $2::text::uuid, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			ref.ID, executionID, attempt, ref.Bytes, sum, s.into.Name())
		if err != nil || tag.RowsAffected() == 0 {
			return err // the row is there: an earlier call was committed after all
		}
		return s.into.Write(ctx, tx, ref.ID, value)
	})
	if err != nil {
		return fmt.Errorf("put result: %w", err)
	}
	return nil
}

// Open returns a value, which the caller closes. Reading ends with ErrDamaged
// instead of the last piece when the value is not what was kept.
func (s *Store) Open(ctx context.Context, ref executor.ValueReference) (io.ReadCloser, error) {
	var keptIn string
	var size int64
	var sum []byte
	err := s.pool.QueryRow(ctx, `SELECT kept_in, bytes, sha256 FROM execution_results WHERE id = $1::text::uuid`, ref.ID).
		Scan(&keptIn, &size, &sum)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("result %s: %w", ref.ID, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open result: %w", err)
	}
	blobs, ok := s.blobs[keptIn]
	if !ok {
		return nil, fmt.Errorf("result %s is in %q: %w", ref.ID, keptIn, ErrElsewhere)
	}
	in, err := blobs.Open(ctx, ref.ID)
	if err != nil {
		return nil, fmt.Errorf("open result: %w", err)
	}
	return &checked{in: in, left: size, sum: sum, hash: sha256.New()}, nil
}

// checked reads a value of known length and hash. It always has one piece in hand
// that it has checked as far as that goes: the last byte is given out only with a
// hash that is right.
type checked struct {
	in   io.ReadCloser
	left int64 // to be given out
	sum  []byte
	hash hash.Hash
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.end()
	}
	p = p[:min(int64(len(p)), c.left)]
	n, err := c.in.Read(p)
	_, _ = c.hash.Write(p[:n]) // never fails
	c.left -= int64(n)
	switch {
	case c.left == 0 && !equal(c.hash.Sum(nil), c.sum):
		return 0, ErrDamaged
	case c.left == 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return 0, fmt.Errorf("%d bytes are missing: %w", c.left, ErrDamaged)
	}
	return n, err
}

// end is what comes after the last byte.
func (c *checked) end() error {
	if !equal(c.hash.Sum(nil), c.sum) {
		return ErrDamaged
	}
	return io.EOF
}

func equal(a, b []byte) bool { return string(a) == string(b) }

// Close implements io.Closer.
func (c *checked) Close() error { return c.in.Close() }
