package client

import (
	"context"
	"errors"
	"time"
)

// JobStreamer is what a JobClient may be besides: one that has jobs sent instead of asking
// for them. NewGRPC returns one. Whoever wraps a JobClient that is one passes this on, or
// its users poll.
type JobStreamer interface {
	// StreamJobs opens a session, which lasts until it breaks, is closed, or ctx ends. That
	// the engine cannot be reached, or refuses, may be told by the session only.
	StreamJobs(ctx context.Context, req StreamRequest) (JobStream, error)
}

// StreamRequest says for whom a session is.
type StreamRequest struct {
	WorkerID string
	JobTypes []string
	// Lease is for how long jobs are leased, and extended; whole seconds; 0 is the engine's
	// default (30 s).
	Lease time.Duration
}

// MaxCredits is how many jobs a session may have been granted that have not come.
const MaxCredits = 1000

// ErrDraining is what Receive says once when no more jobs come in a session: the engine is
// going down, or has heard of Drain. The session goes on for reports.
var ErrDraining = errors.New("no more jobs come in this session")

// JobStream is a session of a worker with an engine. Jobs come as soon as there are some,
// as many as were granted; reports go back on it, those that are ready at the same time
// together.
//
// A session that breaks gives no job back: the leases run out, or the worker reports in
// another session or by a call. Jobs that were sent and never received come again when
// their leases are over.
//
// Its methods may be called by several goroutines at once, except Receive.
type JobStream interface {
	// Grant lets the engine send n more jobs. At most MaxCredits may be open.
	Grant(n int)
	// Receive waits for jobs until ctx ends. Its errors are ErrDraining, which is said
	// once; io.EOF, when the engine has ended the session in order; those of PollJobs; and
	// ErrUnsupported, when the engine knows no sessions.
	Receive(ctx context.Context) ([]Job, error)
	// Drain asks for no more jobs: what was granted is void. Receive answers ErrDraining
	// after the last one.
	Drain()
	// CompleteJobs, FailJob and Heartbeat are those of JobClient. They answer ErrUnavailable
	// once the session is over, and then nobody knows whether the report was heard; it may
	// be repeated. The worker's id is the session's.
	CompleteJobs(ctx context.Context, cs []Completion) []error
	FailJob(ctx context.Context, f Failure) error
	Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error)
	// Close ends the session after what was said has been answered, or when ctx ends.
	Close(ctx context.Context)
}
