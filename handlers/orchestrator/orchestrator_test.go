package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/handlers/orchestrator"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

const (
	sagaA   = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a01"
	sagaB   = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a02"
	command = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a03"
)

// fake notes what it was told and answers what it is told to.
type fake struct {
	mu    sync.Mutex
	heard []string
	fail  func(engine.CommandReply) error
}

func (f *fake) Reply(_ context.Context, r engine.CommandReply) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := string(r.Result)
	if r.Failure != nil {
		said = fmt.Sprintf("%s %s %t", r.Failure.Code, r.Failure.Message, r.Retryable)
	}
	f.heard = append(f.heard, fmt.Sprintf("%s %d %s %s", r.InstanceID.String()[34:], r.Attempt, r.Actor, said))
	if f.fail != nil {
		return f.fail(r)
	}
	return nil
}

func done(saga, output string) topics.SagaReply {
	return topics.SagaReply{SagaID: saga, CommandID: command, Attempt: 2, Participant: "bank", Outcome: topics.SagaDone, Output: []byte(output)}
}

func TestRepliesLeadSagasOn(t *testing.T) {
	t.Parallel()
	f := &fake{}
	h := pipelinetest.New(t, orchestrator.NewConsumer(f, slog.New(slog.DiscardHandler)))
	failed := done(sagaA, "")
	failed.Outcome, failed.Output, failed.Failure = topics.SagaNotDone, nil, &topics.Failure{Reason: "busy", Message: "later", Retryable: true}
	refused := failed
	refused.Outcome, refused.Failure = topics.SagaRefused, nil
	h.Feed(done(sagaA, `{"a":1}`), failed, refused, topics.SagaStarted{SagaID: sagaA, Name: "order"})
	assert.Equal(t, []string{`01 0 bank {"a":1}`, "01 2 bank busy later true", "01 2 bank refused  false"}, f.heard)
	empty := done(sagaB, "")
	empty.Output = nil
	h.Feed(empty)
	assert.Equal(t, `02 0 bank {}`, f.heard[3])
}

func TestRepliesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	f := &fake{}
	h := pipelinetest.New(t, orchestrator.NewConsumer(f, slog.New(slog.DiscardHandler)))
	f.fail = func(engine.CommandReply) error { return fmt.Errorf("late: %w", engine.ErrConflict) }
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, h.Feed(done(sagaA, `{}`)), "one that is late is dropped")
	f.fail = func(engine.CommandReply) error { return fmt.Errorf("instance: %w", engine.ErrNotFound) }
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, h.Feed(done(sagaA, `{}`)))
	odd := done(sagaA, `{}`)
	odd.SagaID = "odd"
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, h.Feed(odd))

	// What the saga cannot take is a failure of the step, or it would wait for ever.
	f.heard = nil
	f.fail = func(r engine.CommandReply) error {
		if r.Failure == nil {
			return fmt.Errorf("%w: no object", engine.ErrInvalid)
		}
		return nil
	}
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, h.Feed(done(sagaA, `[1]`)))
	assert.Equal(t, []string{`01 0 bank [1]`, "01 0 bank bad_reply invalid: no object false"}, f.heard)
}

func TestRepliesWaitForTheEngine(t *testing.T) {
	t.Parallel()
	f := &fake{fail: func(engine.CommandReply) error { return engine.ErrOverloaded }}
	h := pipelinetest.New(t, orchestrator.NewConsumer(f, slog.New(slog.DiscardHandler)))
	env, err := topics.NewEnvelope(done(sagaA, `{}`))
	assert.NoError(t, err)
	_, err = h.TryRecord(env.Record("", []byte(sagaA)))
	assert.ErrorIs(t, err, engine.ErrOverloaded)
	f.fail = nil
	outcomes, err := h.Redeliver()
	assert.NoError(t, errors.Join(err))
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, outcomes)
}
