package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// step is one line of a trace.
type step struct {
	attempt int
	what    string  // "start", "beat" or "end"
	at      float64 // seconds since boot
}

// traceFile makes the file that programs append to, whoever they run as.
func traceFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "trace")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o666))
	return path
}

// readTrace returns what the programs wrote, by execution, in order.
func readTrace(t *testing.T, path string) map[string][]step {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	traces := map[string][]step{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		require.Len(t, words, 4, "trace line %q", line)
		attempt, err := strconv.Atoi(words[1])
		require.NoError(t, err, line)
		at, err := strconv.ParseFloat(words[3], 64)
		require.NoError(t, err, line)
		traces[words[0]] = append(traces[words[0]], step{attempt, words[2], at})
	}
	return traces
}

// overlaps returns what is wrong with the trace of one execution: attempts must
// follow each other, each begin once, and do nothing once the next has begun.
// Lines are in the order in which they were written; an attempt that was killed
// has no end, but the running ones write several times a second.
func overlaps(steps []step) []string {
	var faults []string
	begun := map[int]bool{}
	for i, s := range steps {
		switch {
		case s.what == "start" && begun[s.attempt]:
			faults = append(faults, fmt.Sprintf("attempt %d began more than once", s.attempt))
		case s.what != "start" && !begun[s.attempt]:
			faults = append(faults, fmt.Sprintf("attempt %d did something before it began", s.attempt))
		}
		begun[s.attempt] = true
		if i == 0 {
			continue
		}
		before := steps[i-1]
		if s.attempt < before.attempt {
			faults = append(faults, fmt.Sprintf("attempt %d did something after attempt %d had begun", s.attempt, before.attempt))
		}
		if s.at < before.at {
			faults = append(faults, fmt.Sprintf("a step of attempt %d at %.2f is written after one at %.2f", s.attempt, s.at, before.at))
		}
		if before.what == "end" && s.attempt == before.attempt {
			faults = append(faults, fmt.Sprintf("attempt %d went on after its end", s.attempt))
		}
	}
	return faults
}

func TestOverlapsAreSeen(t *testing.T) {
	t.Parallel()
	begin := step{1, "start", 1}
	for name, c := range map[string]struct {
		steps  []step
		faults int
	}{
		"one attempt":              {[]step{begin, {1, "beat", 1.1}, {1, "end", 1.2}}, 0},
		"killed, then another":     {[]step{begin, {1, "beat", 1.1}, {3, "start", 5}, {3, "end", 6}}, 0},
		"the first one lives on":   {[]step{begin, {2, "start", 5}, {1, "beat", 5.1}, {2, "end", 6}}, 1},
		"an attempt twice":         {[]step{begin, begin}, 1},
		"out of nowhere":           {[]step{{1, "end", 1}}, 1},
		"back in time":             {[]step{begin, {2, "start", 0.9}}, 1},
		"more after the end of it": {[]step{begin, {1, "end", 2}, {1, "beat", 3}}, 1},
	} {
		assert.Len(t, overlaps(c.steps), c.faults, name)
	}
}

// traces checks that no two attempts of one execution overlapped and that what is
// said to have ended by itself was seen to. It returns how many attempts were not
// the first.
func (in *installation) traces(path string, programs []*program) (again int) {
	t := in.t
	t.Helper()
	all := readTrace(t, path)
	for _, p := range programs {
		steps := all[p.id]
		delete(all, p.id)
		name := p.kind + " " + p.id
		assert.Empty(t, overlaps(steps), name)
		for _, s := range steps {
			if s.what == "start" && s.attempt > 1 {
				again++
			}
		}
		if p.cancel == client.Queued {
			assert.Empty(t, steps, "%s was cancelled before it could start", name)
			continue
		}
		in.traced(p, name, steps)
	}
	assert.Empty(t, all, "what ran without having been accepted")
	t.Logf("%d attempts after the first were seen to run", again)
	return again
}

// traced compares the trace of an execution with its history.
func (in *installation) traced(p *program, name string, steps []step) {
	t := in.t
	t.Helper()
	recorded := map[string]bool{}
	for _, attempt := range in.texts(`SELECT DISTINCT convert_from(value, 'UTF8')::jsonb->>'attempt' FROM event_log
		WHERE type = 'millrace.execution.started.v1' AND subject = '` + p.id + `'`) {
		recorded[attempt] = true
	}
	for _, s := range steps {
		assert.True(t, recorded[strconv.Itoa(s.attempt)], "attempt %d of %s ran without an event", s.attempt, name)
	}
	if p.want.state != client.Completed && p.want.state != client.Failed {
		return
	}
	if assert.NotEmpty(t, steps, "%s left no trace", name) {
		last := steps[len(steps)-1]
		want := step{in.count(`SELECT attempt FROM executions WHERE id = $1`, p.id), "end", last.at}
		assert.Equal(t, want, last, "last step of %s", name)
	}
}
