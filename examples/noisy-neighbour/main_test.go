package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// The whole play with fewer actors.
func TestTheQuietUserDoesNotWaitForTheNoisyOne(t *testing.T) {
	t.Parallel()
	// Nothing ages here: on a machine that is busy with other tests this takes long.
	o, err := parse([]string{
		"-n", "1000", "-quiet", "4", "-batch", "100", "-slots", "8", "-work", "10ms", "-ageing", "1s", "-dsn", testenv.Database(t, nil),
	}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, 64, o.limit)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out), out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Regexp(t, `^FAIR: the 4 executions of "quiet" started .* at most \d+ came first \(limit 64\)$`, lines[len(lines)-1])
	assert.Contains(t, out.String(), "1000 of \"noisy\" accepted")
	assert.Equal(t, 4, strings.Count(out.String(), "after it was submitted"))
}

func TestAVerdictCanBeUnfair(t *testing.T) {
	t.Parallel()
	began := time.Now()
	turns := []*turn{
		{waiting: 900, overtaken: 3, submitted: began, startedAt: began.Add(time.Second)},
		{waiting: 800, overtaken: 11, submitted: began, startedAt: began.Add(3 * time.Second)},
	}
	for limit, want := range map[int]error{10: errUnfair, 11: nil} {
		var out bytes.Buffer
		s := &scene{options: options{limit: limit}, out: &out}
		require.ErrorIs(t, s.judge(turns), want)
		assert.Contains(t, out.String(), "3.00 s at most), behind 800 or more")
		assert.Equal(t, want != nil, strings.HasPrefix(out.String(), "UNFAIR:"), out.String())
	}
}

// What started before or after an execution's wait has not overtaken it.
func TestOnlyWhatStartsMeanwhileOvertakes(t *testing.T) {
	t.Parallel()
	s := &starts{first: map[string]start{}}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for i, id := range []string{"a", "b", "c", "d"} {
		s.note(id, noisyUser, at(i))
	}
	s.note("b", noisyUser, at(9)) // a second attempt
	s.note("q", quietUser, at(2))
	assert.Equal(t, 2, s.between(noisyUser, at(0), at(3)))
	assert.Equal(t, 4, s.all(noisyUser))
	began, ok := s.of("b")
	assert.True(t, ok)
	assert.Equal(t, at(1), began)
}

func TestNothingStartsWithBadFlags(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"unexpected argument":    {"more"},
		"at least 1":             {"-n", "0"},
		"between 1 and 1000":     {"-batch", "1001"},
		"nothing would be shown": {"-n", "100"},
		"must be positive":       {"-ageing", "0s"},
		"not defined":            {"-nonsense"},
	} {
		_, err := parse(arguments, io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// It ends, with everything that it started, when it is told to.
func TestItStopsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-n", "50000", "-dsn", testenv.Database(t, nil)}, io.Discard)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run(ctx, o, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("accepted")) {
			cancel()
		}
		return len(p), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
