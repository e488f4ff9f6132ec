package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// File is what scenarios.json has in it.
type File struct {
	Schema    string     `json:"$schema"`
	Version   int        `json:"version"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is one of them.
type Scenario struct {
	Name        string                 `json:"name"`
	Description string                 `json:"description"`
	Requires    []string               `json:"requires"`
	Worker      Worker                 `json:"worker"`
	Handlers    map[string][]Behaviour `json:"handlers"`
	Jobs        []Job                  `json:"jobs"`
	Script      []Step                 `json:"script"`
	Expect      Expect                 `json:"expect"`
}

// Worker is how the worker is set up.
type Worker struct {
	Parallelism  int     `json:"parallelism"`
	LeaseSeconds float64 `json:"leaseSeconds"`
	DrainSeconds float64 `json:"drainSeconds"`
}

// Behaviour is what a handler does in one call.
type Behaviour struct {
	Complete json.RawMessage `json:"complete"`
	Echo     bool            `json:"echo"`
	Describe bool            `json:"describe"`
	Fail     *Failure        `json:"fail"`
	Panic    string          `json:"panic"`
	Hold     *struct {
		Seconds float64 `json:"seconds"`
	} `json:"hold"`
	UntilCancelled bool `json:"untilCancelled"`
	UntilKilled    bool `json:"untilKilled"`
	ReturnsError   bool `json:"returnsError"`
}

// Failure is what a handler fails with, and what is expected to be reported.
type Failure struct {
	Message   string `json:"message"`
	Code      string `json:"code"`
	Retryable *bool  `json:"retryable"`
}

// Job is a job to put up.
type Job struct {
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	Retries   int             `json:"retries"`
	Variables json.RawMessage `json:"variables"`
	Count     int             `json:"count"`
	After     string          `json:"after"`
}

// Step is something that the harness does.
type Step struct {
	When *struct {
		Job string `json:"job"`
		Is  string `json:"is"`
	} `json:"when"`
	Do Action `json:"do"`
}

// Action is what; one member is set.
type Action struct {
	Cancel string `json:"cancel"`
	Steal  *struct {
		Job      string          `json:"job"`
		Complete json.RawMessage `json:"complete"`
	} `json:"steal"`
	Break *struct {
		Call        string `json:"call"`
		Times       int    `json:"times"`
		AfterEffect bool   `json:"afterEffect"`
	} `json:"break"`
	Stop    bool `json:"stop"`
	Restart bool `json:"restart"`
	Kill    bool `json:"kill"`
	Start   bool `json:"start"`
}

// Expect is what has to have happened in the end.
type Expect struct {
	Jobs         map[string]Expectation `json:"jobs"`
	MostAtOnce   int                    `json:"mostAtOnce"`
	StopsCleanly bool                   `json:"stopsCleanly"`
}

// Expectation is what has to have happened to a job.
type Expectation struct {
	Status    Status          `json:"status"`
	Calls     int             `json:"calls"`
	Variables json.RawMessage `json:"variables"`
	Absent    []string        `json:"absent"`
	Cancelled bool            `json:"cancelled"`
	Failures  []Failure       `json:"failures"`
}

// Status is where a job is, as scenarios see it.
type Status string

// The statuses. Open is everything that has not ended.
const (
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
	Open      Status = "OPEN"
)

// Load reads a file of scenarios.
func Load(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read scenarios: %w", err)
	}
	var f File
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return File{}, fmt.Errorf("read scenarios from %s: %w", path, err)
	}
	if f.Version != 1 {
		return File{}, fmt.Errorf("read scenarios from %s: it has version %d, and this harness knows 1", path, f.Version)
	}
	return f, nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// object decodes variables, with numbers as they are written and repetitions written out.
func object(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var vars map[string]any
	if err := decoder.Decode(&vars); err != nil {
		return nil, fmt.Errorf("decode variables: %w", err)
	}
	for name, value := range vars {
		vars[name] = written(value)
	}
	return vars, nil
}

func written(value any) any {
	m, is := value.(map[string]any)
	if !is {
		return value
	}
	text, repeats := m["$repeat"].(string)
	if !repeats {
		return value
	}
	times, err := m["times"].(json.Number).Int64()
	if err != nil {
		return value
	}
	return strings.Repeat(text, int(times))
}
