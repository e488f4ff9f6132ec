package postgres

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ids go to the server and back as they are, whatever the statement takes them for.
func TestUUIDs(t *testing.T) {
	t.Parallel()
	pool := openPool(t, nil)
	a, b := uuid.New(), uuid.New()

	var one, fromText uuid.UUID
	var text string
	var pointer, null *uuid.UUID
	var list, none []uuid.UUID
	var nullable []*uuid.UUID
	var valid uuid.NullUUID
	err := pool.QueryRow(t.Context(), `SELECT $1::uuid, $1::uuid::text, $2::text, $1::uuid, NULL::uuid, $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid, $2::text::uuid`,
		a, b, []uuid.UUID{a, b}, []uuid.UUID(nil), []*uuid.UUID{&a, nil}, uuid.NullUUID{UUID: b, Valid: true},
	).Scan(&one, &text, &fromText, &pointer, &null, &list, &none, &nullable, &valid, &fromText)
	require.NoError(t, err)
	assert.Equal(t, a, one)
	assert.Equal(t, a.String(), text)
	assert.Equal(t, b, fromText)
	assert.Equal(t, &a, pointer)
	assert.Nil(t, null)
	assert.Equal(t, []uuid.UUID{a, b}, list)
	assert.Nil(t, none)
	assert.Equal(t, []*uuid.UUID{&a, nil}, nullable)
	assert.Equal(t, uuid.NullUUID{UUID: b, Valid: true}, valid)

	require.NoError(t, pool.QueryRow(t.Context(), `SELECT NULL::uuid`).Scan(&one))
	assert.Equal(t, a, one, "null leaves it as it is, as database/sql does")
	assert.Error(t, pool.QueryRow(t.Context(), `SELECT 'x'`).Scan(&one))
	var empty int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT cardinality($1::uuid[])`, []uuid.UUID{}).Scan(&empty))
	assert.Zero(t, empty)
}

func BenchmarkUUIDs(b *testing.B) {
	list := make([]uuid.UUID, 8)
	for i := range list {
		list[i] = uuid.New()
	}
	for name, m := range map[string]*pgtype.Map{"carried": pgtype.NewMap(), "of the driver": pgtype.NewMap()} {
		if name == "carried" {
			carryUUIDs(m)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				var err error
				buf, err = m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, list, buf[:0])
				require.NoError(b, err)
			}
		})
	}
}
