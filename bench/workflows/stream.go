package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
)

// connections is how many the load over gRPC uses.
const connections = 4

// streams are clients of an engine's gRPC, each with a connection of its own.
type streams struct {
	conns []*grpc.ClientConn
	turn  *atomic.Int64
}

func dialStreams(address string) (streams, error) {
	s := streams{turn: new(atomic.Int64)}
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.close()
			return s, err
		}
		s.conns = append(s.conns, conn)
	}
	return s, nil
}

func (s streams) close() {
	for _, conn := range s.conns {
		_ = conn.Close() // nothing is under way
	}
}

func (s streams) next() workflowv1.WorkflowEngineClient {
	return workflowv1.NewWorkflowEngineClient(s.conns[s.turn.Add(1)%connections])
}

func (s streams) start(ctx context.Context, definition string) (string, error) {
	out, err := s.next().StartInstance(ctx, &workflowv1.StartInstanceRequest{DefinitionId: definition, VariablesJson: []byte(`{"order":42}`)})
	return out.GetInstance().GetId(), err
}

// workStream works in one session: what comes is completed at once, with as many credits
// as jobs came.
func (l *load) workStream(ctx context.Context, name string, cancel func()) {
	if err := l.session(ctx, name); ctx.Err() == nil {
		l.fail(err, cancel)
	}
}

// session returns why it has ended.
func (l *load) session(ctx context.Context, name string) error {
	stream, err := l.streams.next().StreamJobs(ctx)
	if err != nil {
		return err
	}
	open := &workflowv1.StreamJobsOpen{WorkerId: name, JobTypes: []string{l.jobType}}
	if err := stream.Send(&workflowv1.StreamJobsRequest{Open: open, Credits: int32(l.manner.batch)}); err != nil {
		return err
	}
	instances := map[string]string{}
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range in.GetResults() {
			if r.GetError() != nil {
				return fmt.Errorf("complete job %s: %s", r.GetJobId(), r.GetError().GetMessage())
			}
			l.ended(instances[r.GetJobId()])
			delete(instances, r.GetJobId())
		}
		if in.GetDraining() {
			return errors.New("the engine goes down")
		}
		if len(in.GetJobs()) == 0 {
			continue
		}
		said := &workflowv1.StreamJobsRequest{Credits: int32(len(in.GetJobs()))}
		for _, j := range in.GetJobs() {
			instances[j.GetId()] = j.GetInstanceId()
			said.Completions = append(said.Completions, &workflowv1.JobCompletion{JobId: j.GetId(), Token: j.GetToken(), VariablesJson: []byte(`{"done":true}`)})
		}
		if err := stream.Send(said); err != nil {
			return err
		}
	}
}
