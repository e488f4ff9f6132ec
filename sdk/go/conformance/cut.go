package conformance

import (
	"context"
	"sync"

	"github.com/millrace/millrace/sdk/go/client"
)

// cut is a client whose connection can be cut for ever, as when its process is killed.
type cut struct {
	engine client.JobClient
	done   chan struct{}
	once   sync.Once
}

func newCut(engine client.JobClient) *cut { return &cut{engine: engine, done: make(chan struct{})} }

func (c *cut) off() { c.once.Do(func() { close(c.done) }) }

// through makes a call unless the connection is cut, and ends it when that happens.
func (c *cut) through(ctx context.Context, call func(context.Context) error) error {
	gone := &client.Error{Op: "call", Kind: client.ErrUnavailable, Message: "the connection is cut"}
	select {
	case <-c.done:
		return gone
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		err = call(ctx)
	}()
	select {
	case <-answered:
		return err
	case <-c.done:
		cancel()
		<-answered
		return gone
	}
}

func (c *cut) PollJobs(ctx context.Context, req client.PollRequest) (jobs []client.Job, err error) {
	err = c.through(ctx, func(ctx context.Context) (err error) {
		jobs, err = c.engine.PollJobs(ctx, req)
		return err
	})
	return jobs, err
}

func (c *cut) CompleteJob(ctx context.Context, r client.Completion) error {
	return c.through(ctx, func(ctx context.Context) error { return c.engine.CompleteJob(ctx, r) })
}

func (c *cut) CompleteJobs(ctx context.Context, rs []client.Completion) []error {
	var errs []error
	err := c.through(ctx, func(ctx context.Context) error {
		errs = c.engine.CompleteJobs(ctx, rs)
		return nil
	})
	if err == nil {
		return errs
	}
	errs = make([]error, len(rs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (c *cut) FailJob(ctx context.Context, f client.Failure) error {
	return c.through(ctx, func(ctx context.Context) error { return c.engine.FailJob(ctx, f) })
}

func (c *cut) Heartbeat(ctx context.Context, beats []client.Beat) (results []client.BeatResult, err error) {
	err = c.through(ctx, func(ctx context.Context) (err error) {
		results, err = c.engine.Heartbeat(ctx, beats)
		return err
	})
	return results, err
}
