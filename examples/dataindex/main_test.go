package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// The whole play with fewer actors.
func TestTheIndexIsWhatTheEventsSay(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-n", "1", "-flat", "10", "-dsn", testenv.Database(t, nil)}, io.Discard)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out), "%s", &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Regexp(t, `^SAME: 46 instances, .* the same checksum [0-9a-f]{16}$`, lines[len(lines)-1])
	assert.Contains(t, out.String(), "which payments were declined? 3, for example")
	assert.Contains(t, out.String(), "0 rows differ")
}

func TestAVerdictCanBeDifferent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &play{out: &out}
	require.NoError(t, p.judge("a", "a"))
	assert.Contains(t, out.String(), "SAME: ")
	require.ErrorIs(t, p.judge("a", "b"), errDiffers)
	assert.Contains(t, out.String(), "DIFFERENT: the checksum was a and is b")

	// What is not in the index, or not as it was told, is named.
	p.history = stories("s", time.Unix(0, 0), 5)
	indexed := map[string]dataindex.Instance{}
	for _, i := range p.history.Instances[1:] {
		indexed[i.ID] = i
	}
	changed := indexed["s-00003"]
	changed.Status = "RUNNING"
	indexed["s-00003"] = changed
	assert.Equal(t, []string{"s-00000 (order-processing): not in the index", "s-00003 (payment): status is RUNNING, the SDK says COMPLETED"},
		p.history.Differences(indexed))
}

// The stories are events that can be read, in the flat form.
func TestStories(t *testing.T) {
	t.Parallel()
	all := stories("s", time.Now(), 5)
	require.Len(t, all.Instances, 5)
	for _, record := range all.Records {
		e, skip, err := lifecycle.ReadRecord(record.Of(lifecycleTopic))
		require.NoError(t, err, record.Value)
		assert.Empty(t, skip)
		assert.Equal(t, lifecycle.Flat, e.Shape)
		assert.True(t, json.Valid([]byte(record.Value)))
	}
}

func TestNothingStartsWithBadFlags(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"unexpected argument": {"more"},
		"at least 1":          {"-n", "0"},
		"not negative":        {"-flat", "-1"},
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
	o, err := parse([]string{"-n", "20", "-dsn", testenv.Database(t, nil)}, io.Discard)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run(ctx, o, writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("sent as")) {
			cancel()
		}
		return len(p), nil
	}))
	require.ErrorIs(t, err, context.Canceled)
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
