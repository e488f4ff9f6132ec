package grpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/jobs"
)

const (
	// maxCredits is how many jobs a worker may have asked for and not got.
	maxCredits = 1000
	// maxSaid is how many reports wait for their turn before no more are read.
	maxSaid = 4000
	// sendBytes is about how large a message becomes when much is to be sent at once.
	sendBytes = 512 << 10
	// jobBytes is about what a job takes beside its variables.
	jobBytes = 256
	// tellTimeout bounds handing reports over.
	tellTimeout = 30 * time.Second
	// claimWait is how long one claim waits for jobs.
	claimWait = 20 * time.Second
)

// session is a worker's stream. Four goroutines work on it: one reads what the worker
// says, one claims jobs as credits allow, one hands reports over, and the handler's own
// sends. What each has for the next lies in between, under mu.
type session struct {
	workflows *workflows
	stream    rpc.BidiStreamingServer[workflowv1.StreamJobsRequest, workflowv1.StreamJobsResponse]
	claim     jobs.ClaimRequest

	// Each of these has room for one token: something has changed for its goroutine.
	toSend, toClaim, toReport, toRead chan struct{}

	mu sync.Mutex
	// credits are those that no claim has used.
	credits int
	// claimed are jobs, and results answers, that were not sent yet.
	claimed []jobs.Job
	results []*workflowv1.JobResult
	// said are reports that were not handed over yet; reporting is set while some are
	// being.
	said      reports
	reporting bool
	// held are jobs that were sent and not reported.
	held map[string]struct{}
	// drained is set once no more jobs may be sent, closed once the worker has said all.
	drained, closed bool
	// err ends the session.
	err error
}

// reports are what a worker says of jobs.
type reports struct {
	completions []*workflowv1.JobCompletion
	failures    []*workflowv1.JobFailure
	heartbeats  []*workflowv1.JobHeartbeat
}

func (r *reports) size() int { return len(r.completions) + len(r.failures) + len(r.heartbeats) }

// StreamJobs implements workflowv1.WorkflowEngineServer.
func (s *workflows) StreamJobs(stream rpc.BidiStreamingServer[workflowv1.StreamJobsRequest, workflowv1.StreamJobsResponse]) error {
	first, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return invalid("open", "required", "is required in the first message")
	case err != nil:
		return err
	case first.GetOpen() == nil:
		return invalid("open", "required", "is required in the first message")
	}
	open := first.GetOpen()
	first.Open = nil
	claim, err := claimRequest(stream.Context(), open.GetWorkerId(), open.GetJobTypes(), open.GetLeaseSeconds())
	if err != nil {
		return err
	}
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	one := &session{
		workflows: s, stream: stream, claim: claim, held: map[string]struct{}{},
		toSend: signal(), toClaim: signal(), toReport: signal(), toRead: signal(),
	}
	one.claim.Wait = claimWait
	if err := one.hear(first); err != nil {
		return err
	}
	return one.run(stream.Context())
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run serves the session until its end.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	claiming, stopClaiming := s.workflows.server.untilDrained(ctx)
	var workers sync.WaitGroup
	workers.Go(func() { s.claimJobs(claiming) })
	workers.Go(func() { s.handOver(ctx) })
	// The reader ends with the stream, which is when this handler has returned.
	go s.read(ctx)
	err := s.send(ctx, stopClaiming)
	cancel()
	stopClaiming()
	workers.Wait()
	s.mu.Lock()
	left := s.claimed
	s.claimed = nil
	s.mu.Unlock()
	s.workflows.release(ctx, left)
	return err
}

// read takes what the worker says.
func (s *session) read(ctx context.Context) {
	for {
		in, err := s.stream.Recv()
		if err == nil {
			if in.GetOpen() != nil {
				err = invalid("open", "invalid", "is of the first message only")
			} else {
				err = s.hear(in)
			}
		}
		if err != nil {
			s.mu.Lock()
			if s.closed = true; !errors.Is(err, io.EOF) {
				s.err = err
			}
			s.mu.Unlock()
			wake(s.toSend)
			return
		}
		for s.crowded() {
			select {
			case <-s.toRead:
			case <-ctx.Done():
				return
			}
		}
	}
}

// crowded says whether the worker has to wait until it can say more.
func (s *session) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.size() >= maxSaid
}

// hear takes one message.
func (s *session) hear(in *workflowv1.StreamJobsRequest) error {
	for field, n := range map[string]int{
		"completions": len(in.GetCompletions()), "failures": len(in.GetFailures()), "heartbeats": len(in.GetHeartbeats()),
	} {
		if n > maxBatch {
			return batch(field, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := int(in.GetCredits()); n < 0 || s.credits+n > maxCredits {
		return invalid("credits", "out_of_range", "must not be negative, and at most 1000 may be open")
	}
	s.credits += int(in.GetCredits())
	if in.GetDrain() {
		s.drained, s.credits = true, 0
	}
	s.said.completions = append(s.said.completions, in.GetCompletions()...)
	s.said.failures = append(s.said.failures, in.GetFailures()...)
	s.said.heartbeats = append(s.said.heartbeats, in.GetHeartbeats()...)
	if s.credits > 0 {
		wake(s.toClaim)
	}
	if s.said.size() > 0 {
		wake(s.toReport)
	}
	wake(s.toSend)
	return nil
}

// claimJobs claims as many jobs as there are credits, until ctx ends.
func (s *session) claimJobs(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		req := s.claim
		req.Max = s.credits
		s.mu.Unlock()
		if req.Max == 0 {
			select {
			case <-s.toClaim:
			case <-ctx.Done():
			}
			continue
		}
		claimed, err := s.workflows.server.deps.Jobs.Claim(ctx, req)
		s.mu.Lock()
		if err != nil && ctx.Err() == nil && s.err == nil {
			s.err = err
		}
		s.claimed = append(s.claimed, claimed...)
		s.credits = max(s.credits-len(claimed), 0)
		over := s.err != nil
		s.mu.Unlock()
		wake(s.toSend)
		if over {
			return
		}
	}
}

// handOver hands reports over, all that wait at once, until ctx ends. What is said while
// it is at it makes up the next group. What was said by the end is handed over all the
// same: the worker has done it.
func (s *session) handOver(ctx context.Context) {
	for ended := false; !ended; {
		select {
		case <-s.toReport:
		case <-ctx.Done():
			ended = true
		}
		s.mu.Lock()
		said := s.said
		s.said, s.reporting = reports{}, true
		s.mu.Unlock()
		wake(s.toRead)
		results := s.tell(ctx, said)
		s.mu.Lock()
		s.reporting = false
		s.results = append(s.results, results...)
		s.mu.Unlock()
		wake(s.toSend)
	}
}

// tell hands a group over. Heartbeats come first: what ended a job was said after them.
func (s *session) tell(ctx context.Context, said reports) []*workflowv1.JobResult {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	w, worker := s.workflows, s.claim.WorkerID
	results := make([]*workflowv1.JobResult, 0, said.size())
	if len(said.heartbeats) > 0 {
		results = append(results, w.beat(ctx, worker, s.claim.Lease, said.heartbeats)...)
	}
	if len(said.failures) > 0 {
		results = append(results, w.fail(ctx, worker, said.failures)...)
	}
	if len(said.completions) > 0 {
		results = append(results, w.complete(ctx, worker, said.completions)...)
	}
	return results
}

// send sends what there is until the session is over. stopClaiming ends the claims.
func (s *session) send(ctx context.Context, stopClaiming context.CancelFunc) error {
	draining, told := s.workflows.server.draining, false
	for {
		select {
		case <-s.toSend:
		case <-draining:
			draining = nil
			s.mu.Lock()
			s.drained, s.credits = true, 0
			s.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
		drained := s.drained
		s.mu.Unlock()
		out, unsent, over, err := s.take()
		if len(unsent) > 0 { // claimed when no more may be sent
			s.workflows.release(ctx, unsent)
		}
		if drained && !told { // what was taken just now has no jobs any more
			told = true
			out = append(out, &workflowv1.StreamJobsResponse{Draining: true})
		}
		for _, message := range out {
			if err := s.stream.Send(message); err != nil {
				return err
			}
		}
		if drained {
			stopClaiming()
		}
		s.mu.Lock()
		over = over || draining == nil && s.idle()
		s.mu.Unlock()
		if err != nil || over {
			return err
		}
	}
}

// take returns what is to be sent, jobs that are not, and whether the session is over.
func (s *session) take() (out []*workflowv1.StreamJobsResponse, unsent []jobs.Job, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claimed, results := s.claimed, s.results
	s.claimed, s.results = nil, nil
	for _, r := range results {
		if settled(r) {
			delete(s.held, r.GetJobId())
		}
	}
	if s.drained || s.closed {
		claimed, unsent = nil, claimed
	}
	out = s.messages(claimed, results)
	over = s.err != nil || s.closed && s.said.size() == 0 && !s.reporting && len(s.toReport) == 0
	return out, unsent, over, s.err
}

// idle says whether nothing is open any more. It is called with mu held.
func (s *session) idle() bool {
	return len(s.held) == 0 && s.said.size() == 0 && !s.reporting && len(s.results) == 0 && len(s.claimed) == 0
}

// messages puts jobs and results into messages of a moderate size. It is called with mu
// held.
func (s *session) messages(claimed []jobs.Job, results []*workflowv1.JobResult) []*workflowv1.StreamJobsResponse {
	if len(claimed)+len(results) == 0 {
		return nil
	}
	message := &workflowv1.StreamJobsResponse{Results: results}
	out := []*workflowv1.StreamJobsResponse{message}
	size := 0
	for i := range claimed {
		j := fromJob(&claimed[i])
		n := len(j.GetVariablesJson()) + jobBytes
		if size > 0 && size+n > sendBytes {
			message, size = &workflowv1.StreamJobsResponse{}, 0
			out = append(out, message)
		}
		message.Jobs = append(message.Jobs, j)
		size += n
		s.held[j.GetId()] = struct{}{}
	}
	return out
}

// settled says whether the worker has no more to say of a job: it was reported, or is not the
// worker's any more, which a heartbeat is told as well.
func settled(r *workflowv1.JobResult) bool {
	beat := r.GetKind() == workflowv1.JobReportKind_JOB_REPORT_KIND_HEARTBEAT
	return !transient(r.GetError()) && (!beat || r.GetError() != nil)
}

// transient says whether a report that was refused may be accepted later.
func transient(e *workflowv1.ItemError) bool {
	c := codes.Code(e.GetCode())
	return c == codes.Unavailable || c == codes.DeadlineExceeded || c == codes.Internal
}
