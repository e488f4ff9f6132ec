package workertest

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/sdk/go/client"
	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

// ServerOptions are those of a gRPC server that has an engine registered: clients may ask
// for signs of life while a session brings nothing for minutes.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second})}
}

// Register serves the calls for workers of the service WorkflowEngine: those that an engine
// of BareContract knows, or all. Sessions (StreamJobs) are there unless the engine polls
// shortly.
func Register(s grpc.ServiceRegistrar, e *Engine) {
	// The description is written out because the generated code of this module has another
	// name for the service.
	desc := &grpc.ServiceDesc{ServiceName: "workflow.v1.WorkflowEngine", HandlerType: (*any)(nil)}
	desc.Methods = append(desc.Methods,
		unary("PollJobs", e.rpcPoll), unary("CompleteJob", e.rpcComplete), unary("FailJob", e.rpcFail))
	if !e.bare {
		desc.Methods = append(desc.Methods, unary("CompleteJobs", e.rpcCompleteMany), unary("Heartbeat", e.rpcHeartbeat))
	}
	if !e.shortPolling {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: "StreamJobs", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return e.serveStream(stream) },
		})
	}
	s.RegisterService(desc, nil)
}

func unary[In, Out any](name string, do func(context.Context, *In) (*Out, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		out, err := do(ctx, in)
		if err != nil {
			return nil, grpcError(err)
		}
		return out, nil
	}}
}

func grpcError(err error) error {
	s := status.New(codeOf(err), err.Error())
	var e *client.Error
	if errors.As(err, &e) && e.Code != "" {
		if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: e.Code, Domain: "millrace"}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, client.ErrNotFound):
		return codes.NotFound
	case errors.Is(err, client.ErrConflict), errors.Is(err, client.ErrPollingDisabled):
		return codes.FailedPrecondition
	case errors.Is(err, client.ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, client.ErrDenied):
		return codes.Unauthenticated
	case errors.Is(err, client.ErrUnsupported):
		return codes.Unimplemented
	default:
		return codes.Unavailable
	}
}

func (e *Engine) rpcPoll(ctx context.Context, in *pb.PollJobsRequest) (*pb.PollJobsResponse, error) {
	jobs, err := e.PollJobs(ctx, client.PollRequest{
		WorkerID: in.GetWorkerId(), JobTypes: in.GetJobTypes(), MaxJobs: int(in.GetMaxJobs()),
		Lease: seconds(float64(in.GetLeaseSeconds())), Wait: in.GetWait().AsDuration(),
	})
	if err != nil {
		return nil, err
	}
	out := &pb.PollJobsResponse{}
	for _, j := range jobs {
		wire, err := e.wire(j)
		if err != nil {
			return nil, err
		}
		out.Jobs = append(out.Jobs, wire)
	}
	return out, nil
}

// wire is a job as it is sent.
func (e *Engine) wire(j client.Job) (*pb.Job, error) {
	wire := &pb.Job{
		Id: j.ID, JobType: j.JobType, InstanceId: j.InstanceID, StepId: j.StepID, StepExecutionId: j.StepExecutionID,
		RetriesRemaining: int32(j.RetriesRemaining), LockExpiresAt: timestamppb.New(j.LockExpiresAt),
	}
	if e.bare {
		wire.Variables = &structpb.Struct{}
		return wire, wire.Variables.UnmarshalJSON(j.Variables)
	}
	wire.VariablesJson, wire.Attempt, wire.Token = j.Variables, int32(j.Attempt), j.Token
	return wire, nil
}

func (e *Engine) rpcComplete(ctx context.Context, in *pb.CompleteJobRequest) (*pb.CompleteJobResponse, error) {
	c := client.Completion{JobID: in.GetJobId(), WorkerID: in.GetWorkerId()}
	if e.bare {
		if in.GetVariablesToSet() != nil {
			text, err := in.GetVariablesToSet().MarshalJSON()
			if err != nil {
				return nil, err
			}
			c.Variables = text
		}
	} else {
		c.Variables, c.Token = in.GetVariablesJson(), in.GetToken()
	}
	return &pb.CompleteJobResponse{}, e.CompleteJob(ctx, c)
}

func (e *Engine) rpcFail(ctx context.Context, in *pb.FailJobRequest) (*pb.FailJobResponse, error) {
	return &pb.FailJobResponse{}, e.FailJob(ctx, client.Failure{
		JobID: in.GetJobId(), WorkerID: in.GetWorkerId(), Token: in.GetToken(), Retryable: in.GetRetryable(), Code: in.GetCode(), Message: in.GetErrorMessage(),
		RetryAfter: in.GetRetryAfter().AsDuration(),
	})
}

func (e *Engine) rpcCompleteMany(ctx context.Context, in *pb.CompleteJobsRequest) (*pb.CompleteJobsResponse, error) {
	completions := make([]client.Completion, len(in.GetCompletions()))
	for i, c := range in.GetCompletions() {
		completions[i] = client.Completion{JobID: c.GetJobId(), WorkerID: in.GetWorkerId(), Token: c.GetToken(), Variables: c.GetVariablesJson()}
	}
	out := &pb.CompleteJobsResponse{}
	for i, err := range e.CompleteJobs(ctx, completions) {
		if errors.Is(err, client.ErrUnavailable) {
			return nil, err
		}
		out.Results = append(out.Results, &pb.JobResult{JobId: completions[i].JobID, Error: itemError(err)})
	}
	return out, nil
}

func (e *Engine) rpcHeartbeat(ctx context.Context, in *pb.HeartbeatRequest) (*pb.HeartbeatResponse, error) {
	beats := make([]client.Beat, len(in.GetHeartbeats()))
	for i, b := range in.GetHeartbeats() {
		beats[i] = client.Beat{JobID: b.GetJobId(), WorkerID: in.GetWorkerId(), Token: b.GetToken(), Lease: seconds(float64(in.GetLeaseSeconds()))}
	}
	answers, err := e.Heartbeat(ctx, beats)
	if err != nil {
		return nil, err
	}
	out := &pb.HeartbeatResponse{}
	for i, answer := range answers {
		out.Results = append(out.Results, &pb.JobResult{JobId: beats[i].JobID, Error: itemError(answer.Err), LockExpiresAt: timestamp(answer)})
	}
	return out, nil
}

// timestamp is the end of a lease, nil for one that is lost.
func timestamp(r client.BeatResult) *timestamppb.Timestamp {
	if r.Err != nil {
		return nil
	}
	return timestamppb.New(r.LockExpiresAt)
}

func itemError(err error) *pb.ItemError {
	if err == nil {
		return nil
	}
	item := &pb.ItemError{Code: int32(codeOf(err)), Message: err.Error()}
	var e *client.Error
	if errors.As(err, &e) {
		item.Reason = e.Code
	}
	return item
}
