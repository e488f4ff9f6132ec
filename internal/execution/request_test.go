package execution_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

func TestNormalizeFillsInDefaults(t *testing.T) {
	t.Parallel()
	req := request(t)
	assert.Equal(t, "default", req.Tenant)
	assert.Equal(t, 3, req.Priority)
	assert.Equal(t, "default", req.ResourceClass)
	assert.Equal(t, 1, req.Requirements.Slots)
	assert.Equal(t, 1, req.Retry.MaxAttempts)
	assert.Equal(t, topics.Duration(time.Hour), req.Limits.Run)
}

func TestNumbersThatMakeNoSenseAreToldFromThoseThatDo(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*topics.Request){
		"/requirements/slots: must be between 1 and 1000, not -1":                              func(r *topics.Request) { r.Requirements.Slots = -1 },
		"/requirements/slots: must be between 1 and 1000, not 1001":                            func(r *topics.Request) { r.Requirements.Slots = 1001 },
		"/requirements/cpu_millis: must be between 0 and 1000000, not -1":                      func(r *topics.Request) { r.Requirements.CPUMillis = -1 },
		"/requirements/cpu_millis: must be between 0 and 1000000, not 1000001":                 func(r *topics.Request) { r.Requirements.CPUMillis = 1_000_001 },
		"/requirements/memory_bytes: must be between 0 and 17592186044416, not -1":             func(r *topics.Request) { r.Requirements.MemoryBytes = -1 },
		"/requirements/memory_bytes: must be between 0 and 17592186044416, not 17592186044417": func(r *topics.Request) { r.Requirements.MemoryBytes = 1<<44 + 1 },
		"/requirements/gpus: must be between 0 and 1000, not -1":                               func(r *topics.Request) { r.Requirements.GPUs = -1 },
		"/requirements/gpus: must be between 0 and 1000, not 1001":                             func(r *topics.Request) { r.Requirements.GPUs = 1001 },
		"/priority: must be between 1 and 5, not -1":                                           func(r *topics.Request) { r.Priority = -1 },
		"/priority: must be between 1 and 5, not 6":                                            func(r *topics.Request) { r.Priority = 6 },
		"/limits/queue: must be between 0s and 720h0m0s, not -1ns":                             func(r *topics.Request) { r.Limits.Queue = -1 },
		"/limits/run: must be between 0s and 720h0m0s, not 720h0m0.000000001s":                 func(r *topics.Request) { r.Limits.Run = topics.Duration(720*time.Hour + 1) },
		"/retry/max_attempts: must be between 1 and 100, not 101":                              func(r *topics.Request) { r.Retry.MaxAttempts = 101 },
		"/retry/jitter: must be between 0 and 1":                                               func(r *topics.Request) { r.Retry.Jitter = math.NaN() },
	} {
		req := topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
		change(&req)
		assert.EqualError(t, execution.Normalize(&req, start), "invalid request: "+want)
	}
}

func TestNormalizeNamesEveryFault(t *testing.T) {
	t.Parallel()
	farAhead := start.AddDate(2, 0, 0)
	for name, tc := range map[string]struct {
		change  func(*topics.Request)
		pointer string
		code    string
	}{
		"no executor":      {func(r *topics.Request) { r.Executor = "" }, "/executor", "required"},
		"unknown executor": {func(r *topics.Request) { r.Executor = "magic" }, "/executor", "unknown_executor"},
		"no command":       {func(r *topics.Request) { r.Spec = json.RawMessage(`{}`) }, "/spec/command", "required"},
		"spec not json":    {func(r *topics.Request) { r.Spec = json.RawMessage(`{`) }, "/spec", "malformed"},
		"no spec":          {func(r *topics.Request) { r.Spec = nil }, "/spec", "required"},
		"priority":         {func(r *topics.Request) { r.Priority = 9 }, "/priority", "out_of_range"},
		"negative slots":   {func(r *topics.Request) { r.Requirements.Slots = -1 }, "/requirements/slots", "out_of_range"},
		"absurd memory":    {func(r *topics.Request) { r.Requirements.MemoryBytes = 1 << 60 }, "/requirements/memory_bytes", "out_of_range"},
		"absurd limit":     {func(r *topics.Request) { r.Limits.Run = topics.Duration(1 << 62) }, "/limits/run", "out_of_range"},
		"negative limit":   {func(r *topics.Request) { r.Limits.Total = -1 }, "/limits/total", "out_of_range"},
		"attempts":         {func(r *topics.Request) { r.Retry.MaxAttempts = 1000 }, "/retry/max_attempts", "out_of_range"},
		"jitter":           {func(r *topics.Request) { r.Retry.Jitter = 2 }, "/retry/jitter", "out_of_range"},
		"max age":          {func(r *topics.Request) { r.Retry.MaxAge = -1 }, "/retry/max_age", "out_of_range"},
		"retry on":         {func(r *topics.Request) { r.Retry.RetryOn = []string{"signal", "Exit Code"} }, "/retry/retry_on/1", "invalid"},
		"never on":         {func(r *topics.Request) { r.Retry.NeverOn = []string{"exit_code:0"} }, "/retry/never_on/0", "invalid"},
		"many classes":     {func(r *topics.Request) { r.Retry.NeverOn = make([]string, 33) }, "/retry/never_on", "out_of_range"},
		"not before":       {func(r *topics.Request) { r.NotBefore = &farAhead }, "/not_before", "out_of_range"},
		"label":            {func(r *topics.Request) { r.Labels = map[string]string{"a/b~": "x\x00"} }, "/labels/a~1b~0", "invalid"},
		"user":             {func(r *topics.Request) { r.User = strings.Repeat("u", 200) }, "/user", "too_long"},
		"key not utf-8":    {func(r *topics.Request) { r.ConcurrencyKey = "\xff" }, "/concurrency_key", "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
			tc.change(&req)
			err := execution.Normalize(&req, start)
			var invalid *execution.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Len(t, invalid.Fields, 1, "%v", err)
			assert.Equal(t, tc.pointer, invalid.Fields[0].Pointer)
			assert.Equal(t, tc.code, invalid.Fields[0].Code)
			assert.NotEmpty(t, invalid.Fields[0].Message)
		})
	}
	t.Run("several at once", func(t *testing.T) {
		t.Parallel()
		req := topics.Request{Priority: -1, Retry: topics.Retry{MaxAttempts: -1}}
		var invalid *execution.InvalidError
		require.ErrorAs(t, execution.Normalize(&req, start), &invalid)
		assert.Len(t, invalid.Fields, 3)
	})
}
