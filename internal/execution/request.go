package execution

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/topics"
)

// Bounds of a request. They keep absurd input out; a platform's own limits are
// a matter of its coordinator.
const (
	MaxLabels      = 64
	MaxLabelBytes  = 256
	MaxNameBytes   = 128
	MaxKeyBytes    = 256
	MaxAttempts    = 100
	MaxLimit       = 30 * 24 * time.Hour
	MaxNotBefore   = 366 * 24 * time.Hour
	MaxSlots       = 1_000
	MaxCPUMillis   = 1_000_000
	MaxMemoryBytes = 1 << 44
	MaxGPUs        = 1_000
)

// Defaults of what a request leaves out.
const (
	DefaultUser        = "anonymous"
	DefaultTenant      = "default"
	DefaultOrigin      = "rest"
	DefaultMaxAttempts = 1
	DefaultBackoff     = time.Second
	DefaultMaxBackoff  = time.Minute
	DefaultRunLimit    = time.Hour
)

// MaxFailureClasses bounds each list of failures in a retry policy.
const MaxFailureClasses = 32

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	// Pointer is the JSON pointer (RFC 6901) of the field within the request.
	Pointer string
	// Code is stable: "required", "out_of_range", "too_long", "invalid",
	// "unknown_executor", and those of the executors' own specs.
	Code    string
	Message string
}

func (e FieldError) Error() string { return e.Pointer + ": " + e.Message }

// InvalidError lists everything that is wrong with a request.
type InvalidError struct{ Fields []FieldError }

func (e *InvalidError) Error() string {
	words := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		words[i] = f.Error()
	}
	return "invalid request: " + strings.Join(words, "; ")
}

// checker gathers the faults of one request.
type checker struct{ faults []FieldError }

func (c *checker) add(pointer, code, format string, args ...any) {
	c.faults = append(c.faults, FieldError{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) text(pointer, value string, limit int) {
	switch {
	case len(value) > limit:
		c.add(pointer, "too_long", "is longer than %d bytes", limit)
	case !utf8.ValidString(value):
		c.add(pointer, "invalid", "is not valid UTF-8")
	case strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		c.add(pointer, "invalid", "contains control characters")
	}
}

func (c *checker) number(pointer string, value, low, high int64) {
	if value < low || value > high {
		c.add(pointer, "out_of_range", "must be between %d and %d, not %d", low, high, value)
	}
}

func (c *checker) limit(pointer string, d topics.Duration) {
	if d < 0 || time.Duration(d) > MaxLimit {
		c.add(pointer, "out_of_range", "must be between 0s and %s, not %s", MaxLimit, time.Duration(d))
	}
}

// Normalize fills in the defaults of a request and checks it. The error is an
// *InvalidError that lists every fault at once.
func Normalize(req *topics.Request, now time.Time) error {
	setDefaults(req)
	c := &checker{}
	c.text("/tenant", req.Tenant, MaxNameBytes)
	c.text("/user", req.User, MaxNameBytes)
	c.text("/resource_class", req.ResourceClass, MaxNameBytes)
	c.text("/concurrency_key", req.ConcurrencyKey, MaxKeyBytes)
	c.text("/idempotency_key", req.IdempotencyKey, MaxKeyBytes)
	c.number("/priority", int64(req.Priority), topics.MinPriority, topics.MaxPriority)
	c.requirements(req.Requirements)
	c.limits(req.Limits)
	c.retry(req.Retry)
	c.labels(req.Labels)
	if nb := req.NotBefore; nb != nil && nb.Sub(now) > MaxNotBefore {
		c.add("/not_before", "out_of_range", "lies more than a year ahead")
	}
	c.spec(req)
	if len(c.faults) > 0 {
		return &InvalidError{Fields: c.faults}
	}
	return nil
}

func setDefaults(req *topics.Request) {
	setDefault(&req.Tenant, DefaultTenant)
	setDefault(&req.User, DefaultUser)
	setDefault(&req.ResourceClass, topics.DefaultResourceClass)
	setDefault(&req.Priority, topics.DefaultPriority)
	setDefault(&req.Requirements.Slots, 1)
	setDefault(&req.Origin.Kind, DefaultOrigin)
	setDefault(&req.Limits.Run, topics.Duration(DefaultRunLimit))
	setDefault(&req.Retry.MaxAttempts, DefaultMaxAttempts)
	setDefault(&req.Retry.Backoff, topics.Duration(DefaultBackoff))
	setDefault(&req.Retry.MaxBackoff, topics.Duration(DefaultMaxBackoff))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *checker) requirements(r topics.Requirements) {
	c.number("/requirements/slots", int64(r.Slots), 1, MaxSlots)
	c.number("/requirements/cpu_millis", r.CPUMillis, 0, MaxCPUMillis)
	c.number("/requirements/memory_bytes", r.MemoryBytes, 0, MaxMemoryBytes)
	c.number("/requirements/gpus", int64(r.GPUs), 0, MaxGPUs)
}

func (c *checker) limits(l topics.Limits) {
	c.limit("/limits/queue", l.Queue)
	c.limit("/limits/start", l.Start)
	c.limit("/limits/run", l.Run)
	c.limit("/limits/total", l.Total)
}

func (c *checker) retry(r topics.Retry) {
	c.number("/retry/max_attempts", int64(r.MaxAttempts), 1, MaxAttempts)
	c.limit("/retry/backoff", r.Backoff)
	c.limit("/retry/max_backoff", r.MaxBackoff)
	if !(r.Jitter >= 0 && r.Jitter <= 1) { // also refuses NaN
		c.add("/retry/jitter", "out_of_range", "must be between 0 and 1")
	}
	c.limit("/retry/max_age", r.MaxAge)
	c.failureClasses("/retry/retry_on", r.RetryOn)
	c.failureClasses("/retry/never_on", r.NeverOn)
}

func (c *checker) failureClasses(pointer string, classes []string) {
	if len(classes) > MaxFailureClasses {
		c.add(pointer, "out_of_range", "has more than %d entries", MaxFailureClasses)
		return
	}
	for i, text := range classes {
		if _, err := parseFailureClass(text); err != nil {
			c.add(fmt.Sprintf("%s/%d", pointer, i), "invalid", "%s", err)
		}
	}
}

func (c *checker) labels(labels map[string]string) {
	if len(labels) > MaxLabels {
		c.add("/labels", "out_of_range", "has more than %d entries", MaxLabels)
		return
	}
	for name, value := range labels {
		pointer := "/labels/" + escapePointer(name)
		if name == "" {
			c.add("/labels", "invalid", "has an empty name")
		}
		c.text(pointer, name, MaxLabelBytes)
		c.text(pointer, value, MaxLabelBytes)
	}
}

func (c *checker) spec(req *topics.Request) {
	known := strings.Join(spec.Executors(), ", ")
	if req.Executor == "" {
		c.add("/executor", "required", "is required: one of %s", known)
		return
	}
	err := spec.Parse(req.Executor, req.Spec)
	if unknown := (spec.UnknownExecutorError{}); errors.As(err, &unknown) {
		c.add("/executor", "unknown_executor", "%q is not an executor: use one of %s", req.Executor, known)
		return
	}
	for _, f := range spec.FieldErrors(err) {
		c.add("/spec"+f.Pointer, f.Code, "%s", f.Message)
	}
}

// escapePointer escapes a name for use in a JSON pointer (RFC 6901, section 3).
func escapePointer(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
