package postgres_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
)

// pageFilter stands for the filter of a list.
type pageFilter struct{ User string }

func pageStart() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC) }

func TestAPageTokenBelongsToItsFilter(t *testing.T) {
	t.Parallel()
	want := postgres.Place{At: pageStart(), ID: "e1"}
	token := want.Token(pageFilter{"ada"})
	got, err := postgres.ParseToken(token, pageFilter{"ada"})
	require.NoError(t, err)
	assert.Equal(t, want, got)

	_, err = postgres.ParseToken(token, pageFilter{"bob"})
	require.ErrorIs(t, err, postgres.ErrPageToken)
	for _, bad := range []string{
		"x", "!!", token[:len(token)-3], token + "AAAA",
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":2,"t":1,"i":"e"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"t":1,"i":"e","x":1}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`null`)),
	} {
		_, err := postgres.ParseToken(bad, pageFilter{})
		assert.ErrorIs(t, err, postgres.ErrPageToken, bad)
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add(postgres.Place{At: pageStart(), ID: "e1"}.Token(pageFilter{}))
	f.Add("")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"t":9223372036854775807,"i":"e","f":""}`)))
	f.Fuzz(func(t *testing.T, text string) {
		place, err := postgres.ParseToken(text, pageFilter{})
		if err != nil {
			require.ErrorIs(t, err, postgres.ErrPageToken)
			return
		}
		again, err := postgres.ParseToken(place.Token(pageFilter{}), pageFilter{})
		require.NoError(t, err)
		require.Equal(t, place, again)
	})
}

func TestConditions(t *testing.T) {
	t.Parallel()
	c := &postgres.Conditions{}
	assert.Empty(t, c.Clause())
	c.Equal("a", "")
	c.Equal("b", "x")
	c.Where("(c, d) < (%s, %s)", 1, 2)
	c.Not(func(c *postgres.Conditions) {
		c.Equal("e", "y")
		c.Where("f IS NULL")
	})
	c.Not(func(*postgres.Conditions) {})
	assert.Equal(t, "$5", c.Arg(3))
	assert.Equal(t, "\nWHERE b = $1\n  AND (c, d) < ($2, $3)\n  AND NOT (e = $4 AND f IS NULL)\n  AND NOT (true)", c.Clause())
	assert.Equal(t, []any{"x", 1, 2, "y", 3}, c.Args())
}
