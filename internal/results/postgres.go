package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// NamePostgres is the name of Postgres.
	NamePostgres = "postgres"
	// NameDirectory is the name of Directory.
	NameDirectory = "directory"

	// chunkBytes is the length of a chunk: as much of a value as is in memory while
	// it is read.
	chunkBytes = 256 << 10
)

// Postgres keeps values in the database, in chunks.
type Postgres struct{ pool *pgxpool.Pool }

var _ Blobs = (*Postgres)(nil)

// NewPostgres returns Blobs on a pool.
func NewPostgres(pool *pgxpool.Pool) *Postgres { return &Postgres{pool: pool} }

// Name implements Blobs.
func (p *Postgres) Name() string { return NamePostgres }

// Write implements Blobs.
func (p *Postgres) Write(ctx context.Context, tx pgx.Tx, id string, value []byte) error {
	for index := 0; index*chunkBytes < len(value); index++ {
		chunk := value[index*chunkBytes : min((index+1)*chunkBytes, len(value))]
		_, err := tx.Exec(ctx,
			`INSERT INTO execution_result_chunks (result_id, index, data) VALUES ($1::text::uuid, $2, $3)`, id, index, chunk)
		if err != nil {
			return fmt.Errorf("write chunk: %w", err)
		}
	}
	return nil
}

// Open implements Blobs.
func (p *Postgres) Open(ctx context.Context, id string) (io.ReadCloser, error) {
	return &chunks{ctx: ctx, pool: p.pool, id: id}, nil
}

// chunks reads a value chunk by chunk, each by a query of its own: a reader that is
// slow holds no connection.
type chunks struct {
	ctx  context.Context //nolint:containedctx // an io.Reader has no other way to it
	pool *pgxpool.Pool
	id   string
	next int
	rest []byte
}

// Read implements io.Reader.
func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		err := c.pool.QueryRow(c.ctx,
			`SELECT data FROM execution_result_chunks WHERE result_id = $1::text::uuid AND index = $2`, c.id, c.next).Scan(&c.rest)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, fmt.Errorf("read result: %w", err)
		}
		c.next++
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (c *chunks) Close() error { return nil }

// Remove implements Blobs: the chunks have gone with the rows.
func (p *Postgres) Remove(context.Context, []string) error { return nil }

// Old implements Blobs: there are no chunks without rows.
func (p *Postgres) Old(context.Context, time.Time) ([]string, error) { return nil, nil }
