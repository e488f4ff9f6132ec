package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

// service is the path of the engine's calls; see the package enginepb for why it is not
// that of the generated code.
const service = "/workflow.v1.WorkflowEngine/"

// maxMessage bounds an answer, as maxAnswer does over REST: variables may be large.
const maxMessage = 64 << 20

const (
	// reconnectWithin is the longest pause between attempts to connect: an engine that is
	// back is found again soon, however long it was away.
	reconnectWithin = 5 * time.Second
	// connectTimeout bounds one attempt to connect.
	connectTimeout = 10 * time.Second
	// aliveAfter is after how long without a sign of life, while a call is under way, the
	// engine is asked for one, and aliveWithin how long it may take to give it: so a
	// connection is given up that nothing comes through any more. Engines that want no
	// questions within minutes have answered the longest poll before.
	aliveAfter  = 30 * time.Second
	aliveWithin = 10 * time.Second
)

// NewGRPC returns a client of the engine's gRPC interface, for example at
// "localhost:9090". It speaks plain text unless WithTLS is given, and connects when it is
// used.
func NewGRPC(target string, opts ...Option) (EngineClient, error) {
	o := newOptions(opts)
	transport := insecure.NewCredentials()
	if o.tls != nil {
		transport = credentials.NewTLS(o.tls)
	}
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(o.userAgent),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectWithin}, MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: aliveAfter, Timeout: aliveWithin}),
	}, o.dial...)
	conn, err := grpc.NewClient(target, dial...)
	if err != nil {
		return nil, fmt.Errorf("engine's address %q: %w", target, err)
	}
	return &grpcClient{conn: conn, token: o.token}, nil
}

type grpcClient struct {
	conn  *grpc.ClientConn
	token string
}

func (c *grpcClient) Close() error { return c.conn.Close() }

// call invokes a method and makes an Error of what it answers.
func (c *grpcClient) call(ctx context.Context, op, method string, in, out proto.Message) error {
	return errorOf(ctx, op, c.conn.Invoke(c.outgoing(ctx), service+method, in, out))
}

// outgoing is the context of a call: it says who calls.
func (c *grpcClient) outgoing(ctx context.Context) context.Context {
	if c.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
}

func (c *grpcClient) PollJobs(ctx context.Context, req PollRequest) ([]Job, error) {
	in := &pb.PollJobsRequest{
		WorkerId: req.WorkerID, JobTypes: req.JobTypes, MaxJobs: int32(min(req.MaxJobs, 1000)),
		LeaseSeconds: wholeSeconds(req.Lease), JsonOnly: true,
	}
	if req.Wait > 0 {
		in.Wait = durationpb.New(req.Wait)
	}
	out := &pb.PollJobsResponse{}
	if err := c.call(ctx, "poll jobs", "PollJobs", in, out); err != nil {
		return nil, pollingError(err)
	}
	return jobsOf(out.GetJobs()), nil
}

// pollingError tells that jobs go over Kafka, which is the one state in which an engine
// gives out none.
func pollingError(err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(e.Kind, ErrConflict) {
		e.Kind = ErrPollingDisabled
	}
	return err
}

func jobsOf(in []*pb.Job) []Job {
	jobs := make([]Job, 0, len(in))
	for _, j := range in {
		jobs = append(jobs, Job{
			ID: j.GetId(), JobType: j.GetJobType(), InstanceID: j.GetInstanceId(), StepID: j.GetStepId(),
			StepExecutionID: j.GetStepExecutionId(), Attempt: int(j.GetAttempt()), RetriesRemaining: int(j.GetRetriesRemaining()),
			Token: j.GetToken(), Variables: exact(j.GetVariablesJson(), j.GetVariables()), LockExpiresAt: moment(j.GetLockExpiresAt()),
		})
	}
	return jobs
}

func (c *grpcClient) CompleteJob(ctx context.Context, r Completion) error {
	vars, err := rounded("complete job", r.Variables)
	if err != nil {
		return err
	}
	return c.call(ctx, "complete job", "CompleteJob", &pb.CompleteJobRequest{
		JobId: r.JobID, WorkerId: r.WorkerID, Token: r.Token, VariablesToSet: vars, VariablesJson: r.Variables,
	}, &pb.CompleteJobResponse{})
}

func (c *grpcClient) CompleteJobs(ctx context.Context, cs []Completion) []error {
	return perWorker(cs, func(r Completion) string { return r.WorkerID }, func(worker string, cs []Completion) []error {
		return c.completeJobs(ctx, worker, cs)
	})
}

// completeJobs reports completions of one worker, in halves if they are too much for one
// message.
func (c *grpcClient) completeJobs(ctx context.Context, worker string, cs []Completion) []error {
	const op = "complete jobs"
	in := &pb.CompleteJobsRequest{WorkerId: worker}
	for _, r := range cs {
		in.Completions = append(in.Completions, completionOf(r))
	}
	out := &pb.CompleteJobsResponse{}
	err := c.call(ctx, op, "CompleteJobs", in, out)
	switch {
	case err == nil:
	case len(cs) > 1 && tooLarge(err):
		half := len(cs) / 2
		return append(c.completeJobs(ctx, worker, cs[:half]), c.completeJobs(ctx, worker, cs[half:])...)
	default:
		return fanOut(err, len(cs))
	}
	if len(out.GetResults()) != len(cs) {
		return fanOut(&Error{Op: op, Kind: ErrUnavailable, Message: "the engine answered for other jobs"}, len(cs))
	}
	errs := make([]error, len(cs))
	for i, result := range out.GetResults() {
		errs[i] = itemError(op, result.GetError())
	}
	return errs
}

func completionOf(c Completion) *pb.JobCompletion {
	return &pb.JobCompletion{JobId: c.JobID, Token: c.Token, VariablesJson: c.Variables}
}

func (c *grpcClient) FailJob(ctx context.Context, f Failure) error {
	return c.call(ctx, "fail job", "FailJob", &pb.FailJobRequest{
		JobId: f.JobID, WorkerId: f.WorkerID, Token: f.Token, Retryable: f.Retryable, ErrorMessage: f.Message, Code: f.Code,
		RetryAfter: wait(f.RetryAfter),
	}, &pb.FailJobResponse{})
}

func (c *grpcClient) Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error) {
	const op = "heartbeat"
	if len(beats) == 0 {
		return nil, nil
	}
	in := &pb.HeartbeatRequest{WorkerId: beats[0].WorkerID, LeaseSeconds: wholeSeconds(beats[0].Lease)}
	for _, b := range beats {
		in.Heartbeats = append(in.Heartbeats, &pb.JobHeartbeat{JobId: b.JobID, Token: b.Token})
	}
	out := &pb.HeartbeatResponse{}
	if err := c.call(ctx, op, "Heartbeat", in, out); err != nil {
		return nil, err
	}
	if len(out.GetResults()) != len(beats) {
		return nil, &Error{Op: op, Kind: ErrUnavailable, Message: "the engine answered for other jobs"}
	}
	results := make([]BeatResult, len(beats))
	for i, r := range out.GetResults() {
		results[i] = beatResultOf(op, r)
	}
	return results, nil
}

func beatResultOf(op string, r *pb.JobResult) BeatResult {
	return BeatResult{Err: itemError(op, r.GetError()), LockExpiresAt: moment(r.GetLockExpiresAt())}
}

// wait is nothing for no time.
func wait(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(min(d, MaxRetryAfter))
}

// exact prefers the JSON text, which has the numbers as they were written.
func exact(text []byte, vars *structpb.Struct) json.RawMessage {
	if len(text) > 0 {
		return text
	}
	if vars == nil {
		return nil
	}
	out, err := vars.MarshalJSON()
	if err != nil {
		return nil // a Struct that came over the wire always has a text
	}
	return out
}

// rounded makes a Struct for engines that do not read the JSON text beside it.
func rounded(op string, text json.RawMessage) (*structpb.Struct, error) {
	if len(text) == 0 {
		return nil, nil
	}
	out := &structpb.Struct{}
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, &Error{Op: op, Kind: ErrInvalid, Message: "variables are a JSON object", Cause: err}
	}
	return out, nil
}

func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func wholeSeconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second)
}

// perWorker makes one call for the items of each worker; nearly always there is one.
func perWorker[T any](items []T, worker func(T) string, call func(worker string, items []T) []error) []error {
	if len(items) == 0 {
		return nil
	}
	alike := true
	for _, item := range items[1:] {
		alike = alike && worker(item) == worker(items[0])
	}
	if alike {
		return call(worker(items[0]), items)
	}
	errs := make([]error, len(items))
	groups := map[string][]int{}
	for i, item := range items {
		groups[worker(item)] = append(groups[worker(item)], i)
	}
	for name, places := range groups {
		part := make([]T, len(places))
		for i, place := range places {
			part[i] = items[place]
		}
		for i, err := range call(name, part) {
			errs[places[i]] = err
		}
	}
	return errs
}
