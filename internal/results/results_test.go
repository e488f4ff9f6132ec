package results_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/results"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// bench is a database, a directory, and a store that keeps new values in one of them.
type bench struct {
	*results.Store
	t    *testing.T
	pool *pgxpool.Pool
	dir  string
}

// each runs a test for both places.
func each(t *testing.T, test func(b *bench)) {
	t.Helper()
	for _, name := range []string{results.NamePostgres, results.NameDirectory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{t: t, pool: database(t), dir: filepath.Join(t.TempDir(), "results")}
			files, err := results.NewDirectory(b.dir)
			require.NoError(t, err)
			if b.Store = results.New(b.pool, files, results.NewPostgres(b.pool)); name == results.NamePostgres {
				b.Store = results.New(b.pool, results.NewPostgres(b.pool), files)
			}
			test(b)
		})
	}
}

func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// execution makes an execution in a state. Only what Sweep looks at is true.
func (b *bench) execution(state string, attempt int, more ...string) string {
	b.t.Helper()
	id := uuid.NewString()
	_, err := b.pool.Exec(b.t.Context(), `
		INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, request, state, version, attempt, requested_at)
		VALUES ($1::text::uuid, 't', 'u', 'function', 'default', 1, '{}', $2, 1, $3, now())`, id, state, attempt)
	require.NoError(b.t, err)
	for _, set := range more {
		_, err := b.pool.Exec(b.t.Context(), `UPDATE executions SET `+set+` WHERE id = $1::text::uuid`, id)
		require.NoError(b.t, err)
	}
	return id
}

func (b *bench) put(execution string, attempt int, value []byte) executor.ValueReference {
	b.t.Helper()
	ref, err := results.Refer(value)
	require.NoError(b.t, err)
	require.NoError(b.t, b.Put(b.t.Context(), execution, attempt, ref, value))
	return ref
}

func (b *bench) read(ref executor.ValueReference) ([]byte, error) {
	b.t.Helper()
	in, err := b.Open(b.t.Context(), ref)
	if err != nil {
		return nil, err
	}
	defer func() { assert.NoError(b.t, in.Close()) }()
	return io.ReadAll(in)
}

func (b *bench) sweep(keep time.Duration) results.Swept {
	b.t.Helper()
	swept, err := b.Sweep(b.t.Context(), keep)
	require.NoError(b.t, err)
	return swept
}

func value(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i * 7 / 3)
	}
	return p
}

const chunk = 256 << 10

func TestWhatIsKeptIsRead(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		id := b.execution("RUNNING", 1)
		for _, n := range []int{1, 70_000, chunk - 1, chunk, chunk + 1, 3 * chunk, 5<<20 + 17} {
			want := value(n)
			ref := b.put(id, 1, want)
			assert.EqualValues(b.t, n, ref.Bytes)
			got, err := b.read(ref)
			require.NoError(b.t, err)
			assert.True(b.t, bytes.Equal(want, got), "%d bytes", n)
		}
	})
}

// The first call was committed, and its caller did not learn of it.
func TestPutCanBeRepeated(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		id := b.execution("RUNNING", 1)
		ref := b.put(id, 1, value(chunk+1))
		require.NoError(b.t, b.Put(b.t.Context(), id, 1, ref, value(chunk+1)))
		got, err := b.read(ref)
		require.NoError(b.t, err)
		assert.Len(b.t, got, chunk+1)
	})
}

func TestAValueIsReadWhereItWasKeptBefore(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		ref := b.put(b.execution("RUNNING", 1), 1, value(100))
		files, err := results.NewDirectory(b.dir)
		require.NoError(b.t, err)
		for _, now := range []*results.Store{
			results.New(b.pool, results.NewPostgres(b.pool), files), results.New(b.pool, files, results.NewPostgres(b.pool)),
		} {
			in, err := now.Open(b.t.Context(), ref)
			require.NoError(b.t, err)
			got, err := io.ReadAll(in)
			require.NoError(b.t, err)
			assert.Equal(b.t, value(100), got)
			require.NoError(b.t, in.Close())
		}
		other, err := results.NewDirectory(b.t.TempDir())
		require.NoError(b.t, err)
		if _, err := results.New(b.pool, other).Open(b.t.Context(), ref); assert.Error(b.t, err) {
			require.ErrorIs(b.t, err, results.ErrElsewhere)
		}
	})
}

func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		damage := func(ref executor.ValueReference, sql string, file func(path string) error) {
			_, err := b.pool.Exec(b.t.Context(), sql, ref.ID)
			require.NoError(b.t, err)
			if path := filepath.Join(b.dir, ref.ID[34:], ref.ID); b.t.Name() == "TestDamageIsNoticed/directory" {
				require.NoError(b.t, file(path))
			}
		}
		id := b.execution("RUNNING", 1)
		want := value(2*chunk + 10)

		changed := b.put(id, 1, want)
		damage(changed, `UPDATE execution_result_chunks SET data = overlay(data placing '\xee' from 5) WHERE index = 1 AND result_id = $1::text::uuid`,
			func(path string) error {
				other := bytes.Clone(want)
				other[chunk+5] ^= 1
				return os.WriteFile(path, other, 0o600)
			})
		got, err := b.read(changed)
		require.ErrorIs(b.t, err, results.ErrDamaged)
		assert.Less(b.t, len(got), len(want), "the last piece is withheld")

		short := b.put(id, 1, want)
		damage(short, `DELETE FROM execution_result_chunks WHERE index = 2 AND result_id = $1::text::uuid`,
			func(path string) error { return os.Truncate(path, 2*chunk) })
		_, err = b.read(short)
		require.ErrorIs(b.t, err, results.ErrDamaged)
	})
}

func TestWhatWasNeverKeptIsNotFound(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		ref, err := results.Refer(value(10))
		require.NoError(b.t, err)
		_, err = b.read(ref)
		require.ErrorIs(b.t, err, results.ErrNotFound)
	})
}

func TestSweepRemovesWhatNobodyWants(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		running := b.put(b.execution("RUNNING", 2), 2, value(10))
		lost := b.put(b.execution("RUNNING", 3), 2, value(20))  // the attempt was taken away
		queued := b.put(b.execution("QUEUED", 2), 1, value(30)) // likewise
		failed := b.put(b.execution("FAILED", 1, `finished_at = now(), result = '{"reason":"exit_code"}'`), 1, value(40))
		gone := b.put(uuid.NewString(), 1, value(50))

		id := b.execution("RUNNING", 1)
		twice, kept := b.put(id, 1, value(60)), b.put(id, 1, value(70))
		_, err := b.pool.Exec(b.t.Context(), `
			UPDATE executions SET state = 'COMPLETED', finished_at = now() - interval '2 days',
				result = jsonb_build_object('value_ref', jsonb_build_object('id', $2::text)) WHERE id = $1::text::uuid`, id, kept.ID)
		require.NoError(b.t, err)

		assert.Equal(b.t, results.Swept{Values: 5}, b.sweep(72*time.Hour))
		for _, ref := range []executor.ValueReference{lost, queued, failed, gone, twice} {
			_, err := b.read(ref)
			require.ErrorIs(b.t, err, results.ErrNotFound, "%d bytes", ref.Bytes)
		}
		for _, ref := range []executor.ValueReference{running, kept} {
			_, err := b.read(ref)
			require.NoError(b.t, err, "%d bytes", ref.Bytes)
		}
		assert.Equal(b.t, results.Swept{Values: 1}, b.sweep(24*time.Hour), "its time is over")
		_, err = b.read(kept)
		require.ErrorIs(b.t, err, results.ErrNotFound)
		assert.Equal(b.t, 1, b.left())
	})
}

// left counts what is left of values, beside their rows.
func (b *bench) left() int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(DISTINCT result_id) FROM execution_result_chunks`).Scan(&n))
	files, err := filepath.Glob(filepath.Join(b.dir, "*", "*"))
	require.NoError(b.t, err)
	return n + len(files)
}

// A worker that dies between the value and its row, or while it writes.
func TestStraysAreRemovedWhenTheyAreOld(t *testing.T) {
	t.Parallel()
	each(t, func(b *bench) {
		ref := b.put(b.execution("RUNNING", 1), 1, value(10))
		files, err := results.NewDirectory(b.dir)
		require.NoError(b.t, err)
		write := func(age time.Duration, suffix string) {
			stray, err := results.Refer(value(1))
			require.NoError(b.t, err)
			require.NoError(b.t, files.Write(b.t.Context(), nil, stray.ID, value(1)))
			path := filepath.Join(b.dir, stray.ID[34:], stray.ID)
			require.NoError(b.t, os.Rename(path, path+suffix))
			require.NoError(b.t, os.Chtimes(path+suffix, time.Time{}, time.Now().Add(-age)))
		}
		before := b.left()
		write(time.Minute, "")
		write(2*time.Hour, "")
		write(2*time.Hour, ".part")
		require.NoError(b.t, os.MkdirAll(filepath.Join(b.dir, "ab", "notes"), 0o700))
		require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "ab", "README"), nil, 0o600))
		require.NoError(b.t, os.Chtimes(filepath.Join(b.dir, "ab", "README"), time.Time{}, time.Now().Add(-time.Hour*10)))
		assert.Equal(b.t, results.Swept{Strays: 2}, b.sweep(time.Hour))
		assert.Equal(b.t, before+1+2, b.left(), "the young one and what is not ours stay")
		_, err = b.read(ref)
		require.NoError(b.t, err)
	})
}

// failing writes the value and then has the transaction fail.
type failing struct{ results.Blobs }

func (f failing) Write(ctx context.Context, tx pgx.Tx, id string, value []byte) error {
	return errors.Join(f.Blobs.Write(ctx, tx, id, value), errors.New("no room"))
}

func TestAValueWithoutItsRowDoesNotExist(t *testing.T) {
	t.Parallel()
	pool := database(t)
	files, err := results.NewDirectory(t.TempDir())
	require.NoError(t, err)
	for _, blobs := range []results.Blobs{files, results.NewPostgres(pool)} {
		ref, err := results.Refer(value(10))
		require.NoError(t, err)
		broken := results.New(pool, failing{blobs})
		require.ErrorContains(t, broken.Put(t.Context(), uuid.NewString(), 1, ref, value(10)), "no room")
		_, err = broken.Open(t.Context(), ref)
		require.ErrorIs(t, err, results.ErrNotFound)
		// The next try keeps it.
		st := results.New(pool, blobs)
		require.NoError(t, st.Put(t.Context(), uuid.NewString(), 1, ref, value(10)))
		in, err := st.Open(t.Context(), ref)
		require.NoError(t, err)
		got, err := io.ReadAll(in)
		require.NoError(t, err)
		assert.Equal(t, value(10), got)
		require.NoError(t, in.Close())
	}
}
