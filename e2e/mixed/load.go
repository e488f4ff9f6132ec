package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/client"
)

// load asks for executions all the time, of whichever API there is. Who is not answered
// asks again under the same key, of another one.
type load struct {
	in   *installation
	find func(format string, args ...any)
	rate int

	mu    sync.Mutex
	ids   map[string]string // by key
	ends  map[string]string // the state in which an execution has to end, by key
	worst time.Duration     // the longest that anybody asked until it was accepted
	asked atomic.Int64
	again atomic.Int64 // refused or unanswered, and repeated
	whys  map[string]int
	lines atomic.Int64 // of the command line
}

// acceptWithin is more than any handing over takes: what nobody accepts for so long is
// lost to whoever asked.
const acceptWithin = 90 * time.Second

// trace is where programs note that they run.
func (l *load) trace() string { return filepath.Join(l.in.dir, "trace") }

// run asks until ctx ends, and returns once all has been answered.
func (l *load) run(ctx context.Context) {
	l.ids, l.ends = map[string]string{}, map[string]string{}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.commandLines(ctx) })
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all.Go(func() { l.ask(context.WithoutCancel(ctx), n) })
		}
	}
}

// request makes the n-th request, and the state in which it ends.
func (l *load) request(n int) (client.Request, string) {
	r := client.Request{Executor: "process", IdempotencyKey: fmt.Sprintf("mixed-%d", n), Priority: 1 + n%5, User: fmt.Sprintf("user-%d", n%7), Labels: map[string]string{"n": fmt.Sprint(n)}}
	script, end := `echo done`, client.Completed
	switch n % 8 {
	case 1:
		script, end = `exit 3`, client.Failed
	case 2:
		script = `[ "$MILLRACE_ATTEMPT" -ge 2 ] || exit 9`
		r.Retry = &client.Retry{MaxAttempts: 3, Backoff: "200ms"}
	case 3:
		r.ConcurrencyKey = fmt.Sprintf("key-%d", n%3)
	case 4:
		script = `sleep 1`
	case 5:
		later := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		r.NotBefore, end = &later, client.Cancelled
	case 6:
		script, end = `sleep 30`, client.TimedOut
		r.Limits = &client.Limits{Run: "500ms"}
	}
	spec := client.ProcessSpec{Command: []string{"sh", "-c", `echo "$MILLRACE_EXECUTION_ID $MILLRACE_ATTEMPT" >>"$TRACE"; ` + script}, Env: map[string]string{"TRACE": l.trace()}}
	r.Spec, _ = json.Marshal(spec) // strings can be encoded
	return r, end
}

// anyAPI returns an API, any of those of a version.
func (l *load) anyAPI(of ...version) (*client.Client, bool) {
	all := slices.DeleteFunc(l.in.alive(api), func(m *member) bool { return !slices.Contains(of, m.version) })
	if len(all) == 0 {
		return nil, false
	}
	return all[rand.IntN(len(all))].api, true
}

// insist calls fn with one API after the other, of either version, until one answers.
func (l *load) insist(ctx context.Context, what string, fn func(*client.Client) error) bool {
	return l.insistOn(ctx, []version{older, newer}, what, fn)
}

func (l *load) insistOn(ctx context.Context, of []version, what string, fn func(*client.Client) error) bool {
	ctx, cancel := context.WithTimeout(ctx, acceptWithin)
	defer cancel()
	var last error
	for first := true; ; first = false {
		if c, ok := l.anyAPI(of...); ok {
			if last = fn(c); last == nil {
				return true
			}
			if problem := (*client.Problem)(nil); errors.As(last, &problem) && (problem.Status == http.StatusBadRequest || problem.Status == http.StatusUnprocessableEntity) {
				l.find("%s is refused: %v", what, last)
				return false
			}
		}
		if first {
			l.repeated(last)
		}
		if !pause(ctx, 200*time.Millisecond) {
			l.find("%s was not accepted for %s: %v", what, acceptWithin, last)
			return false
		}
	}
}

func (l *load) ask(ctx context.Context, n int) {
	l.asked.Add(1)
	r, end := l.request(n)
	began := time.Now()
	var e client.Execution
	submit := func(c *client.Client) (err error) {
		e, err = c.Submit(ctx, r)
		return err
	}
	if !l.insist(ctx, r.IdempotencyKey, submit) {
		return
	}
	id, took := e.ID, time.Since(began)
	l.accepted(r.IdempotencyKey, id, end, took)
	if n%4 == 0 {
		// Whichever version is asked, the key stands for the same execution.
		if l.insist(ctx, r.IdempotencyKey, submit) && e.ID != id {
			l.find("key %s stands for %s and for %s", r.IdempotencyKey, id, e.ID)
		}
	}
	if end == client.Cancelled {
		l.insist(ctx, "cancel of "+id, func(c *client.Client) error { return ignoreProblem(c.Cancel(ctx, id, "no longer needed")) })
	}
	l.insist(ctx, "reading "+id, func(c *client.Client) error {
		got, err := c.Get(ctx, id)
		if problem := (*client.Problem)(nil); errors.As(err, &problem) && problem.Status == http.StatusNotFound {
			l.find("%s of %s was accepted and is not found", id, r.IdempotencyKey)
			return nil
		}
		if err == nil && got.ID != id {
			l.find("%s is read as %s", id, got.ID)
		}
		return err
	})
}

// repeated counts why something had to be asked for again.
func (l *load) repeated(why error) {
	l.again.Add(1)
	text := "there is no API of that version"
	if problem := (*client.Problem)(nil); errors.As(why, &problem) {
		text = problem.Code
	} else if why != nil {
		text = why.Error()
		text = text[strings.LastIndex(text, ": ")+1:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whys == nil {
		l.whys = map[string]int{}
	}
	l.whys[text]++
}

// ignoreProblem passes over what the API says no to: an execution that has ended by now
// cannot be cancelled.
func ignoreProblem[T any](_ T, err error) error {
	if problem := (*client.Problem)(nil); errors.As(err, &problem) && problem.Status < http.StatusInternalServerError {
		return nil
	}
	return err
}

func (l *load) accepted(key, id, end string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids[key], l.ends[key] = id, end
	l.worst = max(l.worst, took)
}

// worstSince returns the longest that anybody had to ask since it was called last.
func (l *load) worstSince() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst := l.worst
	l.worst = 0
	return worst
}

// commandLines uses the command line of both versions, in turn, with any API.
func (l *load) commandLines(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		v := []version{older, newer}[n%2]
		key, text := fmt.Sprintf("line-%d", n), fmt.Sprintf("line %d\n", n)
		l.asked.Add(1)
		var id string
		ok := l.insist(context.WithoutCancel(ctx), key, func(c *client.Client) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			out, code, err := l.in.command(ctx, v, "submit", "--url", c.URL(), "--wait", "--idempotency-key", key, "--user", "line", "--", "printf", text)
			if err == nil && (code != 0 || out != text) {
				err = fmt.Errorf("submit --wait ended with %d and printed %q", code, out)
			}
			if err != nil {
				return err
			}
			if err := l.in.db.QueryRow(ctx, `SELECT execution_id::text FROM idempotency_keys WHERE key = $1`, key).Scan(&id); err != nil {
				return err
			}
			out, code, err = l.in.command(ctx, v, "executions", "get", id, "--url", c.URL(), "-o", "name")
			if err == nil && (code != 0 || strings.TrimSpace(out) != id) {
				err = fmt.Errorf("executions get %s ended with %d and printed %q", id, code, out)
			}
			return err
		})
		if !ok {
			return
		}
		l.accepted(key, id, client.Completed, 0)
		l.lines.Add(1)
		pause(ctx, time.Second)
	}
}
