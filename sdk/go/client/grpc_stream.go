package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

const (
	// streamBytes is about how large a message of several reports becomes. With reportBytes
	// it keeps their number below the 1000 of a kind that engines take in one.
	streamBytes = 32 << 10
	// streamMost is beyond what a report goes by a call of its own: refused there for its
	// size, it is alone.
	streamMost = 1 << 20
	// reportBytes is about what a report takes beside its text.
	reportBytes = 64
)

// StreamJobs implements JobStreamer.
func (c *grpcClient) StreamJobs(ctx context.Context, req StreamRequest) (JobStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	desc := &grpc.StreamDesc{StreamName: "StreamJobs", ServerStreams: true, ClientStreams: true}
	stream, err := c.conn.NewStream(c.outgoing(ctx), desc, service+desc.StreamName)
	if err != nil {
		err = pollingError(errorOf(ctx, opStream, err))
		cancel()
		return nil, err
	}
	s := &grpcStream{
		client: c, stream: stream, cancel: cancel, worker: req.WorkerID,
		toSend: make(chan struct{}, 1), arrived: make(chan struct{}, 1), over: make(chan struct{}),
		waiting: map[reportKey][]chan *pb.JobResult{},
	}
	s.out = outgoing{open: &pb.StreamJobsOpen{WorkerId: req.WorkerID, JobTypes: req.JobTypes, LeaseSeconds: wholeSeconds(req.Lease)}}
	s.wakeSender()
	go s.read(ctx)
	go s.write()
	return s, nil
}

const opStream = "stream jobs"

// grpcStream is a session over gRPC. One goroutine reads, one writes; both end with the
// stream.
type grpcStream struct {
	client *grpcClient
	stream grpc.ClientStream
	cancel context.CancelFunc
	worker string

	// toSend and arrived have room for one token: something has changed. over is closed
	// when the session has ended and err is set.
	toSend, arrived, over chan struct{}

	mu  sync.Mutex
	out outgoing
	// jobs are those that nobody has received. draining is set when no more come, told when
	// Receive has said so.
	jobs           []Job
	draining, told bool
	// waiting are those who wait for the answer to a report, first come, first served.
	waiting map[reportKey][]chan *pb.JobResult
	err     error
}

type reportKey struct {
	job  string
	kind pb.JobReportKind
}

// outgoing is what is to be said.
type outgoing struct {
	open           *pb.StreamJobsOpen
	credits        int
	completions    []*pb.JobCompletion
	failures       []*pb.JobFailure
	heartbeats     []*pb.JobHeartbeat
	drain, closing bool
}

func (s *grpcStream) wakeSender() {
	select {
	case s.toSend <- struct{}{}:
	default:
	}
}

// say changes what is to be said.
func (s *grpcStream) say(change func(*outgoing)) {
	s.mu.Lock()
	change(&s.out)
	s.mu.Unlock()
	s.wakeSender()
}

// write says what there is to say until the session is over or was closed.
func (s *grpcStream) write() {
	for {
		select {
		case <-s.toSend:
		case <-s.over:
			return
		}
		s.mu.Lock()
		out := s.out
		s.out = outgoing{}
		s.mu.Unlock()
		for _, message := range out.messages() {
			if s.stream.SendMsg(message) != nil {
				return // the reader is told why
			}
		}
		if out.closing {
			_ = s.stream.CloseSend() // says nothing that the reader is not told
			return
		}
	}
}

// messages are what is to be said, none of them large unless one report is.
func (o *outgoing) messages() []*pb.StreamJobsRequest {
	message := &pb.StreamJobsRequest{Open: o.open, Credits: int32(o.credits), Drain: o.drain}
	all := []*pb.StreamJobsRequest{message}
	size := 0
	room := func(n int) {
		if n += reportBytes; size > 0 && size+n > streamBytes {
			message, size = &pb.StreamJobsRequest{}, 0
			all = append(all, message)
		}
		size += n
	}
	for _, h := range o.heartbeats {
		room(0)
		message.Heartbeats = append(message.Heartbeats, h)
	}
	for _, c := range o.completions {
		room(len(c.GetVariablesJson()))
		message.Completions = append(message.Completions, c)
	}
	for _, f := range o.failures {
		room(len(f.GetMessage()))
		message.Failures = append(message.Failures, f)
	}
	if o.open == nil && o.credits == 0 && !o.drain && size == 0 {
		return nil
	}
	return all
}

// read takes what the engine says until the session is over.
func (s *grpcStream) read(ctx context.Context) {
	for {
		in := &pb.StreamJobsResponse{}
		if err := s.stream.RecvMsg(in); err != nil {
			s.end(ctx, err)
			return
		}
		s.mu.Lock()
		s.jobs = append(s.jobs, jobsOf(in.GetJobs())...)
		s.draining = s.draining || in.GetDraining()
		for _, r := range in.GetResults() {
			s.answer(r)
		}
		s.mu.Unlock()
		s.wakeReceiver()
	}
}

func (s *grpcStream) wakeReceiver() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// answer gives an answer to who has waited for it longest. The caller holds mu.
func (s *grpcStream) answer(r *pb.JobResult) {
	key := reportKey{r.GetJobId(), r.GetKind()}
	queue := s.waiting[key]
	if len(queue) == 0 {
		return
	}
	queue[0] <- r
	if len(queue) == 1 {
		delete(s.waiting, key)
	} else {
		s.waiting[key] = queue[1:]
	}
}

func (s *grpcStream) end(ctx context.Context, err error) {
	if !errors.Is(err, io.EOF) {
		err = pollingError(errorOf(ctx, opStream, err))
		var e *Error
		if tooLarge(err) && errors.As(err, &e) {
			// One of its reports was: the session ends for it, but another may begin.
			e.Kind = ErrUnavailable
		}
	}
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.cancel()
	close(s.over)
}

func (s *grpcStream) Grant(n int) { s.say(func(o *outgoing) { o.credits += n }) }

func (s *grpcStream) Drain() { s.say(func(o *outgoing) { o.drain, o.credits = true, 0 }) }

func (s *grpcStream) Receive(ctx context.Context) ([]Job, error) {
	for {
		s.mu.Lock()
		jobs, err := s.jobs, s.err
		s.jobs = nil
		if len(jobs) == 0 && s.draining && !s.told {
			s.told, err = true, ErrDraining
		}
		s.mu.Unlock()
		if len(jobs) > 0 {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-s.arrived:
		case <-s.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *grpcStream) Close(ctx context.Context) {
	s.say(func(o *outgoing) { o.closing = true })
	select {
	case <-s.over:
	case <-ctx.Done():
	}
	s.cancel()
	<-s.over
}

func (s *grpcStream) CompleteJobs(ctx context.Context, cs []Completion) []error {
	const op = "complete jobs"
	small, large := make([]int, 0, len(cs)), []int(nil)
	for i, c := range cs {
		if len(c.Variables) > streamMost {
			large = append(large, i)
		} else {
			small = append(small, i)
		}
	}
	errs := make([]error, len(cs))
	answers := s.report(pb.JobReportKind_JOB_REPORT_KIND_COMPLETION, len(small), func(i int) string { return cs[small[i]].JobID }, func(o *outgoing) {
		for _, i := range small {
			o.completions = append(o.completions, completionOf(cs[i]))
		}
	})
	for _, i := range large {
		errs[i] = s.client.CompleteJob(ctx, cs[i])
	}
	for n, i := range small {
		r, err := s.await(ctx, op, answers[n])
		if err == nil {
			err = itemError(op, r.GetError())
		}
		errs[i] = err
	}
	return errs
}

func (s *grpcStream) FailJob(ctx context.Context, f Failure) error {
	const op = "fail job"
	answers := s.report(pb.JobReportKind_JOB_REPORT_KIND_FAILURE, 1, func(int) string { return f.JobID }, func(o *outgoing) {
		o.failures = append(o.failures, &pb.JobFailure{
			JobId: f.JobID, Token: f.Token, Retryable: f.Retryable, Code: f.Code, Message: f.Message, RetryAfter: wait(f.RetryAfter),
		})
	})
	r, err := s.await(ctx, op, answers[0])
	if err != nil {
		return err
	}
	return itemError(op, r.GetError())
}

func (s *grpcStream) Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error) {
	const op = "heartbeat"
	answers := s.report(pb.JobReportKind_JOB_REPORT_KIND_HEARTBEAT, len(beats), func(i int) string { return beats[i].JobID }, func(o *outgoing) {
		for _, b := range beats {
			o.heartbeats = append(o.heartbeats, &pb.JobHeartbeat{JobId: b.JobID, Token: b.Token})
		}
	})
	results := make([]BeatResult, len(beats))
	for i, answer := range answers {
		r, err := s.await(ctx, op, answer)
		if err != nil {
			return nil, err
		}
		results[i] = beatResultOf(op, r)
	}
	return results, nil
}

// report says n reports of a kind and returns where their answers come.
func (s *grpcStream) report(kind pb.JobReportKind, n int, job func(int) string, say func(*outgoing)) []<-chan *pb.JobResult {
	answers := make([]<-chan *pb.JobResult, n)
	s.say(func(o *outgoing) {
		say(o)
		for i := range answers {
			answer := make(chan *pb.JobResult, 1)
			key := reportKey{job(i), kind}
			s.waiting[key] = append(s.waiting[key], answer)
			answers[i] = answer
		}
	})
	return answers
}

// await waits for the answer to a report.
func (s *grpcStream) await(ctx context.Context, op string, answer <-chan *pb.JobResult) (*pb.JobResult, error) {
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("%s: %w", op, ctx.Err())
		}
		return nil, &Error{Op: op, Kind: ErrUnavailable, Cause: ctx.Err()}
	case <-s.over:
	}
	select {
	case r := <-answer: // the last that was heard
		return r, nil
	default:
		return nil, &Error{Op: op, Kind: ErrUnavailable, Message: "the session ended before the answer"}
	}
}

var _ JobStreamer = (*grpcClient)(nil)
