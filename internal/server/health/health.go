// Package health answers whether the process is alive and whether it can serve.
//
// Live says only that the process answers. Ready runs named checks, at most once
// a second however often it is asked, and fails from the moment that Drain is
// called, which is the first step of a shutdown: whoever balances load sends no
// more requests before the listener closes.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxAge is how long the result of the checks is handed out again.
	maxAge = time.Second
	// checkTimeout bounds one run of a check.
	checkTimeout = 3 * time.Second
)

// Check is one thing that must be in order for the process to serve.
type Check struct {
	// Name identifies the check: "postgres", "kafka", "migrations".
	Name string
	// Run returns nil or the cause. It must not put secrets into the error. Nil: nothing
	// is checked, and Note is all that there is to say.
	Run func(ctx context.Context) error
	// Note is something that whoever looks should know although nothing is wrong.
	Note string
}

// CheckResult is the outcome of a check.
type CheckResult struct {
	Name   string  `json:"name" doc:"Name of the check" example:"postgres"`
	OK     bool    `json:"ok"`
	Cause  string  `json:"cause,omitempty" doc:"Why it failed"`
	Note   string  `json:"note,omitempty" doc:"What to know although nothing is wrong"`
	Millis float64 `json:"millis" doc:"How long the check took"`
}

// Report is the outcome of all checks.
type Report struct {
	Ready bool `json:"ready"`
	// Checks are in the order in which they were given.
	Checks []CheckResult `json:"checks"`
	// CheckedAt is when they were run.
	CheckedAt time.Time `json:"checked_at"`
}

// Failing returns the names of the checks that failed.
func (r Report) Failing() []string {
	var names []string
	for _, c := range r.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// ErrDraining is the cause of the check "shutdown" after Drain.
var ErrDraining = errors.New("the process is shutting down")

// Health runs the checks. It is safe for concurrent use.
type Health struct {
	checks   []Check
	draining atomic.Bool
	mu       sync.Mutex
	last     Report
}

// New returns a Health of the given checks.
func New(checks ...Check) *Health { return &Health{checks: slices.Clone(checks)} }

// Add adds a check, for parts that are not there in every process.
func (h *Health) Add(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, c)
}

// Drain makes the process not ready, for good.
func (h *Health) Drain() { h.draining.Store(true) }

// Draining reports whether Drain was called.
func (h *Health) Draining() bool { return h.draining.Load() }

// Report runs the checks, all at once, unless that was done within the last
// second.
func (h *Health) Report(ctx context.Context) Report {
	report := h.run(ctx)
	if h.Draining() {
		report.Ready = false
		report.Checks = append(slices.Clone(report.Checks), CheckResult{Name: "shutdown", Cause: ErrDraining.Error()})
	}
	return report
}

func (h *Health) run(ctx context.Context) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.last.CheckedAt.IsZero() && time.Since(h.last.CheckedAt) < maxAge {
		return h.last
	}
	// One caller that goes away must not fail the checks for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	results := make([]CheckResult, len(h.checks))
	var wg sync.WaitGroup
	for i, c := range h.checks {
		wg.Go(func() { results[i] = run(ctx, c) })
	}
	wg.Wait()
	ready := !slices.ContainsFunc(results, func(r CheckResult) bool { return !r.OK })
	h.last = Report{Ready: ready, Checks: results, CheckedAt: time.Now().UTC()}
	return h.last
}

func run(ctx context.Context, c Check) CheckResult {
	began := time.Now()
	var err error
	if c.Run != nil {
		err = c.Run(ctx)
	}
	r := CheckResult{Name: c.Name, OK: err == nil, Note: c.Note, Millis: float64(time.Since(began).Microseconds()) / 1000}
	if err != nil {
		r.Cause = err.Error()
	}
	return r
}

// Live answers 200 "ok".
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok\n")
}

// Ready answers 200 "ready" or 503 with the names of the checks that failed. With
// ?verbose it answers the Report as JSON, causes included.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	report := h.Report(r.Context())
	status := http.StatusOK
	if !report.Ready {
		status = http.StatusServiceUnavailable
	}
	if r.URL.Query().Has("verbose") {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(report)
		return
	}
	if report.Ready {
		writeText(w, status, "ready\n")
		return
	}
	text := "not ready:"
	for _, name := range report.Failing() {
		text += " " + name
	}
	writeText(w, status, text+"\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
