package kubernetes

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// logEntry is an entry of the log file of a container, as container runtimes write them: a
// line, or a part of one.
type logEntry struct {
	at   time.Time
	text string
}

// serve is what a kubelet answers with for a log with timestamps.
func serve(entries []logEntry, since *time.Time) []byte {
	var out bytes.Buffer
	fresh := true
	for _, e := range entries {
		if since != nil && e.at.Before(since.Truncate(time.Second)) {
			continue
		}
		if fresh {
			fmt.Fprintf(&out, "%s ", e.at.Format(time.RFC3339Nano))
		}
		out.WriteString(e.text)
		fresh = strings.HasSuffix(e.text, "\n")
	}
	return out.Bytes()
}

// content is what the program has written.
func content(entries []logEntry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.text)
	}
	return b.String()
}

func entriesFrom(t *rapid.T) []logEntry {
	at := time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC)
	var all []logEntry
	for range rapid.IntRange(0, 60).Draw(t, "entries") {
		at = at.Add(time.Duration(rapid.SampledFrom([]int{1, 1, 1000, 300_000_000, 1_200_000_000, 5_000_000_000}).Draw(t, "pause")))
		text := rapid.StringMatching(`[a-c\x00 ]{0,12}`).Draw(t, "text")
		if !rapid.Bool().Draw(t, "partial") || text == "" {
			text += "\n"
		}
		all = append(all, logEntry{at, text})
	}
	return all
}

// Whatever cuts the readings, and wherever, what is passed on is what was written.
func TestATranscriptLosesNothingAndDoublesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := entriesFrom(t)
		var out bytes.Buffer
		tr := &transcript{out: &out}
		for written := 0; ; {
			answer := serve(all[:written], tr.since())
			if rapid.Bool().Draw(t, "cut") {
				answer = answer[:rapid.IntRange(0, len(answer)).Draw(t, "at")]
			}
			_, err := tr.read(bytes.NewReader(answer))
			require.NoError(t, err)
			if written == len(all) && !rapid.Bool().Draw(t, "again") {
				break
			}
			written = rapid.IntRange(written, len(all)).Draw(t, "written")
		}
		_, err := tr.read(bytes.NewReader(serve(all, tr.since())))
		require.NoError(t, err)
		assert.Equal(t, content(all), out.String())
		assert.Zero(t, tr.gaps)

		before := out.Len()
		news, err := tr.read(bytes.NewReader(serve(all, tr.since())))
		require.NoError(t, err)
		assert.Zero(t, news)
		assert.Equal(t, before, out.Len())
	})
}

// Two streams are written by two threads: their lines may lie in the log the other way
// round than they were stamped.
func TestATranscriptBearsLinesOutOfOrder(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC)
	all := []logEntry{
		{at, "one\n"},
		{at.Add(1000*time.Millisecond + 3), "two\n"},
		{at.Add(1000*time.Millisecond - 5), "three\n"},
		{at.Add(1000*time.Millisecond + 1), "four\n"},
		{at.Add(1001 * time.Millisecond), "five\n"},
	}
	full := serve(all, nil)
	for cut := range len(full) {
		var out bytes.Buffer
		tr := &transcript{out: &out}
		_, err := tr.read(bytes.NewReader(full[:cut]))
		require.NoError(t, err)
		_, err = tr.read(bytes.NewReader(serve(all, tr.since())))
		require.NoError(t, err)
		require.Equal(t, content(all), out.String(), "cut at %d", cut)
	}
}

func TestATranscriptGoesOnBehindWhatWasRotatedAway(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC)
	var all []logEntry
	for i := range 10 {
		all = append(all, logEntry{at.Add(time.Duration(i) * 700 * time.Millisecond), fmt.Sprintf("line %d\n", i)})
	}
	var out bytes.Buffer
	tr := &transcript{out: &out}
	_, err := tr.read(bytes.NewReader(serve(all[:4], nil)))
	require.NoError(t, err)
	for range 2 { // reading it again brings nothing, and is no further loss
		_, err = tr.read(bytes.NewReader(serve(all[6:], tr.since())))
		require.NoError(t, err)
		assert.Equal(t, content(slices.Concat(all[:4], all[6:])), out.String())
		assert.Equal(t, 1, tr.gaps)
	}
}

func TestATranscriptLeavesOutTheWordsOfTheKubelet(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tr := &transcript{out: &out}
	n, err := tr.read(strings.NewReader("unable to retrieve container logs for containerd://8f2c\nfailed to try resolving symlinks"))
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Empty(t, out.String())
}

// A program that asks for input on a line that it does not end is heard at once.
func TestATranscriptDoesNotWaitForTheEndOfALine(t *testing.T) {
	t.Parallel()
	in, kubelet := io.Pipe()
	said := make(chan string, 8)
	tr := &transcript{out: writerFunc(func(p []byte) (int, error) { said <- string(p); return len(p), nil })}
	ended := make(chan error, 1)
	go func() { _, err := tr.read(in); ended <- err }()
	_, err := io.WriteString(kubelet, "2026-11-21T21:00:00.000000001Z name? ")
	require.NoError(t, err)
	assert.Equal(t, "name? ", <-said)
	_, err = io.WriteString(kubelet, "x\n")
	require.NoError(t, err)
	assert.Equal(t, "x\n", <-said)
	require.NoError(t, kubelet.CloseWithError(io.ErrUnexpectedEOF))
	require.ErrorIs(t, <-ended, io.ErrUnexpectedEOF)
}

func TestATranscriptTakesALongOutputInSmallPieces(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	log := io.MultiReader(strings.NewReader("2026-11-21T21:00:00Z "), io.LimitReader(letters{}, size))
	var total, largest int
	tr := &transcript{out: writerFunc(func(p []byte) (int, error) {
		total += len(p)
		largest = max(largest, len(p))
		return len(p), nil
	})}
	n, err := tr.read(log)
	require.NoError(t, err)
	assert.EqualValues(t, size, n)
	assert.Equal(t, size, total)
	assert.LessOrEqual(t, largest, 64<<10)
}

// letters is a line without an end.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
