package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/executor"
)

// Builtins returns the functions that every worker has, in a map of the
// caller's own:
//
//   - "echo" returns its args.
//   - "noop" returns null.
//   - "sleep" waits for {"duration": "1s"} or until it is stopped.
//   - "fail" fails with {"message": "text", "retryable": true}; both can be left
//     out, and retryable is false then.
//
// Args that do not fit are permanent errors.
func Builtins() map[string]Func {
	return map[string]Func{"echo": echo, "noop": noop, "sleep": sleep, "fail": fail}
}

func echo(_ context.Context, call Call) (any, error) { return call.Args, nil }

func noop(context.Context, Call) (any, error) { return nil, nil }

func sleep(ctx context.Context, call Call) (any, error) {
	var args struct {
		Duration string `json:"duration"`
	}
	if err := decode(call.Args, &args); err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(args.Duration)
	if err != nil || d < 0 {
		return nil, executor.Permanent(fmt.Errorf("read args: duration %q is not a time like \"1s\"", args.Duration))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func fail(_ context.Context, call Call) (any, error) {
	args := struct {
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}{Message: "failed on request"}
	if !bytes.Equal(call.Args, []byte("null")) {
		if err := decode(call.Args, &args); err != nil {
			return nil, err
		}
	}
	err := errors.New(args.Message)
	if !args.Retryable {
		err = executor.Permanent(err)
	}
	return nil, err
}

// decode reads args strictly; what does not fit now never will.
func decode(raw json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return executor.Permanent(fmt.Errorf("read args: %w", err))
	}
	return nil
}
