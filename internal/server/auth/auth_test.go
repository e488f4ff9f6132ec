package auth_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/auth"
)

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, loopback := range map[string]bool{
		"127.0.0.1:8080": true, "[::1]:8080": true, "localhost:8080": true, "127.9.9.9:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "example.com:80": false, "8080": false,
	} {
		assert.Equal(t, loopback, auth.IsLoopback(address), address)
	}
}

func TestStaticTokens(t *testing.T) {
	t.Parallel()
	store := auth.Static{
		{Hash: auth.HashToken("a"), Principal: auth.Principal{Name: "ada"}},
		{Hash: auth.HashToken("b"), Principal: auth.Principal{Name: "bob"}},
	}
	p, ok, err := store.Lookup(t.Context(), auth.HashToken("b"))
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "bob", p.Name)
	_, ok, err = store.Lookup(t.Context(), auth.HashToken(""))
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestNobodyMayDoNothing(t *testing.T) {
	t.Parallel()
	nobody := auth.From(t.Context())
	assert.False(t, nobody.Allows(auth.Read))
	assert.False(t, nobody.Allows(""))
}
