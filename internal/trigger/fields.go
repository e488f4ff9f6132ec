package trigger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/topics"
)

// What a target may say of requirements, limits and retries. Zero that was written is told
// apart from what was left out: it is out of range, and no default.
type (
	requirements struct {
		Slots       *int  `json:"slots"`
		CPUMillis   int64 `json:"cpu_millis"`
		MemoryBytes int64 `json:"memory_bytes"`
		GPUs        int   `json:"gpus"`
	}
	durations struct {
		Queue *topics.Duration `json:"queue"`
		Start *topics.Duration `json:"start"`
		Run   *topics.Duration `json:"run"`
		Total *topics.Duration `json:"total"`
	}
	retry struct {
		MaxAttempts *int             `json:"max_attempts"`
		Backoff     *topics.Duration `json:"backoff"`
		MaxBackoff  *topics.Duration `json:"max_backoff"`
		Jitter      float64          `json:"jitter"`
		MaxAge      *topics.Duration `json:"max_age"`
		RetryOn     []string         `json:"retry_on"`
		NeverOn     []string         `json:"never_on"`
	}
)

// given sets *into to *from if there is one, which must not be zero.
func given[T comparable](faults []Fault, pointer string, from, into *T) []Fault {
	if from == nil {
		return faults
	}
	var zero T
	if *into = *from; *from == zero {
		faults = append(faults, Fault{Pointer: pointer, Code: CodeRange, Message: "must be more than 0; leave it out for the default"})
	}
	return faults
}

func setPriority(r *topics.Request, n *int) []Fault {
	r.Priority = *n
	return checkPriority(*n)
}

func checkPriority(n int) []Fault {
	if n < topics.MinPriority || n > topics.MaxPriority {
		return []Fault{{Code: CodeRange, Message: fmt.Sprintf("must be between %d and %d, not %d", topics.MinPriority, topics.MaxPriority, n)}}
	}
	return nil
}

func setRequirements(r *topics.Request, q *requirements) []Fault {
	r.Requirements.CPUMillis, r.Requirements.MemoryBytes, r.Requirements.GPUs = q.CPUMillis, q.MemoryBytes, q.GPUs
	return given(nil, "/slots", q.Slots, &r.Requirements.Slots)
}

func setLimits(r *topics.Request, l *durations) (faults []Fault) {
	faults = given(faults, "/queue", l.Queue, &r.Limits.Queue)
	faults = given(faults, "/start", l.Start, &r.Limits.Start)
	faults = given(faults, "/run", l.Run, &r.Limits.Run)
	return given(faults, "/total", l.Total, &r.Limits.Total)
}

func setRetry(r *topics.Request, t *retry) (faults []Fault) {
	r.Retry.Jitter, r.Retry.RetryOn, r.Retry.NeverOn = t.Jitter, t.RetryOn, t.NeverOn
	faults = given(faults, "/max_attempts", t.MaxAttempts, &r.Retry.MaxAttempts)
	faults = given(faults, "/backoff", t.Backoff, &r.Retry.Backoff)
	faults = given(faults, "/max_backoff", t.MaxBackoff, &r.Retry.MaxBackoff)
	return given(faults, "/max_age", t.MaxAge, &r.Retry.MaxAge)
}

// setNotBefore sets a time, which a text gives as in RFC 3339.
func setNotBefore(pointer string) func(*topics.Request, value) error {
	return func(r *topics.Request, v value) error {
		if v.null() {
			return nil
		}
		text, err := v.text()
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return shapeFault(pointer, CodeInvalid, "must be a time as in RFC 3339, such as 2026-01-02T15:04:05Z")
		}
		r.NotBefore = &at
		return nil
	}
}

// setLabels sets labels. Those that are null are left out.
func setLabels(pointer string) func(*topics.Request, value) error {
	return func(r *topics.Request, v value) error {
		if v.null() {
			return nil
		}
		if kind := v.kind(); kind != "an object" {
			return shapeFault(pointer, CodeWrongType, "must be an object, not %s", kind)
		}
		raw, err := v.appendJSON(nil)
		if err != nil {
			return err
		}
		labels := map[string]string{}
		for name, written := range rawjson.Members(raw) {
			label, text := value{written: written}, ""
			at := pointer + "/" + strictjson.Escape(rawjson.Unquote(name))
			set := textOf(at, func(_ *json.RawMessage, s string) { text = s })
			if err := set(nil, label); err != nil {
				return err
			}
			if !label.null() {
				labels[rawjson.Unquote(name)] = text
			}
		}
		r.Labels = labels
		return nil
	}
}
