package workertest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace/millrace/sdk/go/client"
	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

// session is a worker's stream: one goroutine claims and sends jobs, one hears reports and
// answers them.
type session struct {
	engine *Engine
	stream grpc.ServerStream
	open   *pb.StreamJobsOpen
	// stopClaiming is called when no more jobs may be sent.
	stopClaiming context.CancelFunc
	// granted has room for one token, ended for what either goroutine ends with.
	granted chan struct{}
	ended   chan error

	sending sync.Mutex

	mu      sync.Mutex
	credits int
	// held are jobs that were sent and not reported, leaving is set when the engine goes
	// down.
	held    map[string]struct{}
	leaving bool
}

// serveStream is a session. It breaks with the faults of PollJobs; those of reports are
// answers to these.
func (e *Engine) serveStream(stream grpc.ServerStream) error {
	first := &pb.StreamJobsRequest{}
	if err := stream.RecvMsg(first); err != nil {
		return err
	}
	if first.GetOpen() == nil {
		return grpcError(&client.Error{Op: "stream jobs", Kind: client.ErrInvalid, Message: "open is required in the first message"})
	}
	s := &session{
		engine: e, stream: stream, open: first.GetOpen(), held: map[string]struct{}{}, granted: make(chan struct{}, 1), ended: make(chan error, 3),
	}
	claiming, stop := context.WithCancel(stream.Context())
	defer stop()
	s.stopClaiming = stop
	var claims sync.WaitGroup
	claims.Go(func() { s.claim(claiming) })
	claims.Go(func() { s.leave(claiming) })
	go s.hear(first) // until the stream ends
	err := <-s.ended
	stop()
	claims.Wait()
	return err
}

// leave ends the session in order when the engine goes down.
func (s *session) leave(ctx context.Context) {
	s.engine.mu.Lock()
	draining := s.engine.draining
	s.engine.mu.Unlock()
	select {
	case <-ctx.Done():
		return
	case <-draining:
	}
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.stopClaiming()
}

// claim sends as many jobs as there are credits, until ctx ends, and then says that no more
// come.
func (s *session) claim(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := s.credits
		s.mu.Unlock()
		if n == 0 {
			select {
			case <-s.granted:
			case <-ctx.Done():
			}
			continue
		}
		jobs, err := s.engine.PollJobs(ctx, client.PollRequest{
			WorkerID: s.open.GetWorkerId(), JobTypes: s.open.GetJobTypes(), MaxJobs: n, Lease: seconds(float64(s.open.GetLeaseSeconds())), Wait: 20 * time.Second,
		})
		switch {
		case ctx.Err() != nil:
			s.engine.release(jobs)
		case err != nil:
			s.ended <- grpcError(err)
			return
		default:
			s.give(jobs)
		}
	}
	s.send(&pb.StreamJobsResponse{Draining: true})
	s.endIfDone()
}

func (s *session) give(jobs []client.Job) {
	out := &pb.StreamJobsResponse{}
	s.mu.Lock()
	s.credits = max(s.credits-len(jobs), 0)
	for _, j := range jobs {
		s.held[j.ID] = struct{}{}
		wire, _ := s.engine.wire(j) // only engines that have no sessions give an error
		out.Jobs = append(out.Jobs, wire)
	}
	s.mu.Unlock()
	s.send(out)
}

func (s *session) send(out *pb.StreamJobsResponse) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if len(out.GetJobs())+len(out.GetResults()) > 0 || out.GetDraining() {
		_ = s.stream.SendMsg(out) // hear is told what is wrong
	}
}

// endIfDone ends the session of an engine that goes down once nothing is open.
func (s *session) endIfDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving && len(s.held) == 0 {
		select {
		case s.ended <- nil:
		default: // it has ended already
		}
	}
}

// hear takes what the worker says until it has said all.
func (s *session) hear(in *pb.StreamJobsRequest) {
	for {
		s.mu.Lock()
		s.credits += int(in.GetCredits())
		s.mu.Unlock()
		select {
		case s.granted <- struct{}{}:
		default:
		}
		if in.GetDrain() {
			s.stopClaiming()
		}
		s.send(&pb.StreamJobsResponse{Results: s.take(in)})
		s.endIfDone()
		in = &pb.StreamJobsRequest{}
		if err := s.stream.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			select {
			case s.ended <- err:
			default:
			}
			return
		}
	}
}

// take hands reports over, as the calls of the same names.
func (s *session) take(in *pb.StreamJobsRequest) []*pb.JobResult {
	ctx, worker := s.stream.Context(), s.open.GetWorkerId()
	var results []*pb.JobResult
	add := func(job string, kind pb.JobReportKind, err error) *pb.JobResult {
		r := &pb.JobResult{JobId: job, Kind: kind, Error: itemError(err)}
		results = append(results, r)
		if !errors.Is(err, client.ErrUnavailable) && (err != nil || kind != pb.JobReportKind_JOB_REPORT_KIND_HEARTBEAT) {
			s.mu.Lock()
			delete(s.held, job)
			s.mu.Unlock()
		}
		return r
	}
	for _, h := range in.GetHeartbeats() {
		beat := client.Beat{JobID: h.GetJobId(), WorkerID: worker, Token: h.GetToken(), Lease: seconds(float64(s.open.GetLeaseSeconds()))}
		answers, err := s.engine.Heartbeat(ctx, []client.Beat{beat})
		if err != nil {
			add(h.GetJobId(), pb.JobReportKind_JOB_REPORT_KIND_HEARTBEAT, err)
			continue
		}
		add(h.GetJobId(), pb.JobReportKind_JOB_REPORT_KIND_HEARTBEAT, answers[0].Err).LockExpiresAt = timestamp(answers[0])
	}
	for _, f := range in.GetFailures() {
		add(f.GetJobId(), pb.JobReportKind_JOB_REPORT_KIND_FAILURE, s.engine.FailJob(ctx, client.Failure{
			JobID: f.GetJobId(), WorkerID: worker, Token: f.GetToken(), Retryable: f.GetRetryable(), Code: f.GetCode(), Message: f.GetMessage(),
			RetryAfter: f.GetRetryAfter().AsDuration(),
		}))
	}
	completions := make([]client.Completion, len(in.GetCompletions()))
	for i, c := range in.GetCompletions() {
		completions[i] = client.Completion{JobID: c.GetJobId(), WorkerID: worker, Token: c.GetToken(), Variables: c.GetVariablesJson()}
	}
	for i, err := range s.complete(ctx, completions) {
		add(completions[i].JobID, pb.JobReportKind_JOB_REPORT_KIND_COMPLETION, err)
	}
	return results
}

// complete takes one for what it is, so that a fault of CompleteJob meets it.
func (s *session) complete(ctx context.Context, completions []client.Completion) []error {
	if len(completions) == 1 {
		return []error{s.engine.CompleteJob(ctx, completions[0])}
	}
	return s.engine.CompleteJobs(ctx, completions)
}
