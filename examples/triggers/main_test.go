package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// The whole play with fewer actors, on a broker and a database that are somebody else's.
func TestMessagesStartTheirTargetsOnce(t *testing.T) {
	t.Parallel()
	perform(t, testenv.Broker(t))
}

func TestMessagesStartTheirTargetsOnceOnRealKafka(t *testing.T) {
	perform(t, realkafka.Shared(t))
}

func perform(t *testing.T, brokers []string) {
	t.Helper()
	o, err := parse([]string{
		"-n", "14", "-parcels", "3", "-firings", "1",
		"-brokers", strings.Join(brokers, ","), "-dsn", testenv.Database(t, nil),
	}, io.Discard)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out), "%s", &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Regexp(t, `^RIGHT: \d+ executions and instances were started .* nothing was lost \(\d+ promises\)$`, lines[len(lines)-1])
	for _, says := range []string{
		"14 orders were executed, each once", "although 2 attempts failed", "not_json: ", "partition 0 stands at offset 1, key 0/1",
		"401: hook_unauthorized", "without a gap",
	} {
		assert.Contains(t, out.String(), says)
	}
}

func TestAVerdictCanBeWrong(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &play{out: &out, started: 3}
	p.promise(true, "one is kept")
	require.NoError(t, p.judge())
	assert.Contains(t, out.String(), "RIGHT: 3 executions")
	p.promise(false, "the other")
	require.ErrorIs(t, p.judge(), errWrong)
	assert.Contains(t, out.String(), "WRONG, this does not hold: the other")
	assert.True(t, strings.HasSuffix(out.String(), "\nWRONG: 1 of 2 promises were broken\n"), out.String())
}

func TestNothingStartsWithBadFlags(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"unexpected argument": {"more"},
		"at least 10":         {"-n", "9"},
		"must be positive":    {"-patience", "0s"},
		"not defined":         {"-nonsense"},
	} {
		_, err := parse(arguments, io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// It ends, with everything that it started, when it is told to.
func TestItStopsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-dsn", testenv.Database(t, nil)}, io.Discard)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run(ctx, o, writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("PARCELS")) {
			cancel()
		}
		return len(b), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
}

type writerFunc func(b []byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
