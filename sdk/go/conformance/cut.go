package conformance

import (
	"context"
	"sync"

	"github.com/millrace/millrace/sdk/go/client"
)

var errCut = &client.Error{Op: "call", Kind: client.ErrUnavailable, Message: "the connection is cut"}

// cut is a client whose connection can be cut for ever, as when its process is killed.
type cut struct {
	engine client.JobClient
	done   chan struct{}
	once   sync.Once
}

func newCut(engine client.JobClient) *cut { return &cut{engine: engine, done: make(chan struct{})} }

func (c *cut) off() { c.once.Do(func() { close(c.done) }) }

func (c *cut) isOff() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// through makes a call unless the connection is cut, and ends it when that happens.
func (c *cut) through(ctx context.Context, call func(context.Context) error) error {
	if c.isOff() {
		return errCut
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
		return errCut
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

// StreamJobs has jobs sent where the client can do that.
func (c *cut) StreamJobs(ctx context.Context, req client.StreamRequest) (client.JobStream, error) {
	streams, can := c.engine.(client.JobStreamer)
	switch {
	case !can:
		return nil, client.ErrUnsupported
	case c.isOff():
		return nil, errCut
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := streams.StreamJobs(ctx, req)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer cancel()
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}()
	return &cutStream{JobStream: stream, of: c}, nil
}

// cutStream is a session that is cut with its client: what is said after that is not heard.
type cutStream struct {
	client.JobStream
	of *cut
}

func (s *cutStream) Receive(ctx context.Context) ([]client.Job, error) {
	jobs, err := s.JobStream.Receive(ctx)
	if s.of.isOff() {
		return nil, errCut
	}
	return jobs, err
}

func (s *cutStream) CompleteJobs(ctx context.Context, cs []client.Completion) []error {
	if !s.of.isOff() {
		return s.JobStream.CompleteJobs(ctx, cs)
	}
	errs := make([]error, len(cs))
	for i := range errs {
		errs[i] = errCut
	}
	return errs
}

func (s *cutStream) FailJob(ctx context.Context, f client.Failure) error {
	if s.of.isOff() {
		return errCut
	}
	return s.JobStream.FailJob(ctx, f)
}

func (s *cutStream) Heartbeat(ctx context.Context, beats []client.Beat) ([]client.BeatResult, error) {
	if s.of.isOff() {
		return nil, errCut
	}
	return s.JobStream.Heartbeat(ctx, beats)
}

var _ client.JobStreamer = (*cut)(nil)
