package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/internal/client"
)

// pollInterval is how often an execution is asked for where live events are not
// available.
const pollInterval = 500 * time.Millisecond

// await waits for the end of an execution, passes on its output and returns an
// error that carries the exit code.
func (c *cli) await(ctx context.Context, api *client.Client, e client.Execution, timeout time.Duration) error {
	interrupted := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c.notef("execution %s", e.ID)
	out := &liveOutput{c: c, api: api, id: e.ID, quiet: c.output == "json" || c.output == "yaml" || c.output == "name"}
	final, err := c.follow(ctx, api, e, out)
	switch {
	case interrupted.Err() != nil:
		return &exitError{exitInterrupted, fmt.Sprintf("interrupted; execution %s goes on: `millrace executions cancel %s` stops it", e.ID, e.ID)}
	case ctx.Err() != nil:
		return &exitError{exitTimeout, fmt.Sprintf("execution %s has not ended within %s and goes on", e.ID, timeout)}
	case err != nil:
		return err
	}
	if err := out.complete(ctx, final); err != nil {
		return err
	}
	if out.quiet {
		if err := render(c, c.out, c.executionListing([]client.Execution{final}, true)); err != nil {
			return err
		}
	}
	return c.outcome(final)
}

// outcome is the error that stands for how an execution ended.
func (c *cli) outcome(e client.Execution) error {
	if e.State == client.Completed {
		c.notef("execution %s %s after %s", e.ID, e.State, elapsed(e))
		return nil
	}
	code := exitFailure
	if e.State == client.TimedOut {
		code = exitTimeout
	}
	text := fmt.Sprintf("execution %s %s", e.ID, e.State)
	if e.State == client.Rejected && e.Result != nil {
		text += " (" + e.Result.Reason + ")"
	}
	if reason := resultText(e.Result); reason != "" {
		text += ": " + reason
	}
	if wait, ok := retryAfter(e); ok {
		text += "; try again in " + span(wait)
	}
	return &exitError{code, text}
}

// follow reads the events until the execution has ended and returns how it then
// stands. Where there are no live events it asks again and again instead.
func (c *cli) follow(ctx context.Context, api *client.Client, e client.Execution, out *liveOutput) (client.Execution, error) {
	options := client.WatchOptions{ExecutionID: e.ID, OnReconnect: func(err error, wait time.Duration) {
		c.notef("%s; connecting again in %s", err, span(wait))
	}}
	for event, err := range api.Watch(ctx, options) {
		var problem *client.Problem
		switch {
		case errors.As(err, &problem) && problem.Status >= 500:
			c.notef("live output is not available (%s): waiting for the end", problem.Title)
			return c.poll(ctx, api, e.ID)
		case err != nil:
			return e, err
		case event.Type == client.EventOutput:
			if err := out.event(event); err != nil {
				return e, err
			}
		}
	}
	// The last event may be read before the row that it tells of, on a replica.
	return c.poll(ctx, api, e.ID)
}

// poll asks for the execution until it has ended.
func (c *cli) poll(ctx context.Context, api *client.Client, id string) (client.Execution, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		e, err := api.Get(ctx, id)
		if err != nil || client.Final(e.State) {
			return e, err
		}
		select {
		case <-ctx.Done():
			return e, ctx.Err()
		case <-ticker.C:
		}
	}
}

// liveOutput passes on the output of an execution, each byte once.
type liveOutput struct {
	c       *cli
	api     *client.Client
	id      string
	quiet   bool
	attempt int
	written map[string]int64 // by stream, of the current attempt
}

// event writes a piece of output. Pieces that were written already, or that come
// behind a gap, are left to complete.
func (o *liveOutput) event(e client.Event) error {
	var piece client.OutputData
	if err := json.Unmarshal(e.Data, &piece); err != nil {
		return fmt.Errorf("decode output of %s: %w", o.id, err)
	}
	if piece.Attempt != o.attempt || o.written == nil {
		o.attempt, o.written = piece.Attempt, make(map[string]int64)
	}
	at := o.written[piece.Stream]
	if piece.Offset > at || piece.Offset+int64(len(piece.Data)) <= at {
		return nil
	}
	return o.write(piece.Stream, piece.Data[at-piece.Offset:])
}

func (o *liveOutput) write(stream string, data []byte) error {
	o.written[stream] += int64(len(data))
	if o.quiet {
		return nil
	}
	_, err := o.target(stream).Write(data)
	return err
}

func (o *liveOutput) target(stream string) io.Writer {
	if stream == "stderr" {
		return o.c.err
	}
	return o.c.out
}

// complete writes what the live events did not bring: all of it when there were
// none.
func (o *liveOutput) complete(ctx context.Context, e client.Execution) error {
	if o.quiet || e.Result == nil || e.Attempt == 0 {
		return nil
	}
	if o.attempt != e.Attempt || o.written == nil {
		o.attempt, o.written = e.Attempt, make(map[string]int64)
	}
	for stream, kept := range map[string]*client.Stream{"stdout": e.Result.Stdout, "stderr": e.Result.Stderr} {
		if kept == nil || kept.KeptBytes <= o.written[stream] {
			continue
		}
		var all bytes.Buffer
		if _, err := o.api.Output(ctx, o.id, stream, e.Attempt, &all); err != nil {
			return err
		}
		if missing := all.Bytes(); int64(len(missing)) > o.written[stream] {
			if err := o.write(stream, missing[o.written[stream]:]); err != nil {
				return err
			}
		}
		if kept.Truncated {
			o.c.notef("%s was cut off after %d of %d bytes", stream, kept.KeptBytes, kept.Bytes)
		}
	}
	return nil
}
