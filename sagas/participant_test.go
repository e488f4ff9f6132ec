package sagas_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/topics"
)

func TestAStepTakesEffectOnceAndRepliesEveryTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, (&shop{}).saga())
	c := b.command()
	reply, others := b.send(c)
	assert.Equal(t, topics.SagaDone, reply.Outcome)
	assert.JSONEq(t, `{"reserved":3}`, string(reply.Output), "only what changed is told")
	assert.Equal(t, 1, others)
	assert.Equal(t, 7, b.left())

	for _, repeated := range []topics.SagaCommand{c, b.again(c)} {
		again, others := b.send(repeated)
		assert.Equal(t, topics.SagaDone, again.Outcome)
		assert.JSONEq(t, `{"reserved":3}`, string(again.Output))
		assert.Zero(t, others, "a stored reply publishes nothing else")
		assert.Equal(t, 7, b.left())
	}
	next := b.command()
	_, _ = b.send(next)
	assert.Equal(t, 4, b.left(), "another command is another effect")
}

func TestAFailedAttemptLeavesNothingAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := &shop{fail: errors.New("the door is locked")}
	b := newBench(t, s.saga())
	c := b.command()
	reply, others := b.send(c)
	assert.Equal(t, topics.SagaNotDone, reply.Outcome)
	assert.Equal(t, &topics.Failure{Reason: "failed", Message: "the door is locked", Retryable: true}, reply.Failure)
	assert.Zero(t, others, "what it published before it failed is not sent")
	assert.Equal(t, 10, b.left())

	s.fail = nil
	reply, _ = b.send(c)
	assert.Equal(t, topics.SagaNotDone, reply.Outcome, "the same attempt has the same answer, or it would run after the saga has gone on")
	assert.Equal(t, 10, b.left())
	reply, _ = b.send(b.again(c))
	assert.Equal(t, topics.SagaDone, reply.Outcome)
	assert.Equal(t, 7, b.left())
}

func TestFailuresSayWhetherAnotherAttemptMayHelp(t *testing.T) {
	t.Parallel()
	s := &shop{}
	b := newBench(t, s.saga())
	for _, test := range []struct {
		name string
		fail error
		hook func()
		want topics.Failure
	}{
		{"final", sagas.Fail("sold_out", "no %s left", "nuts"), nil, topics.Failure{Reason: "sold_out", Message: "no nuts left"}},
		{"own code", &sagas.Failure{Code: "busy", Message: "later", Retryable: true}, nil, topics.Failure{Reason: "busy", Message: "later", Retryable: true}},
		{"bad code", &sagas.Failure{Code: "Not A Code", Message: "x"}, nil, topics.Failure{Reason: "failed", Message: "x"}},
		{"panic", nil, func() { panic("oh") }, topics.Failure{Reason: "panic", Message: "the step panicked: oh", Retryable: true}},
	} {
		s.fail, s.hook = test.fail, test.hook
		reply, _ := b.send(b.command())
		assert.Equal(t, &test.want, reply.Failure, test.name)
	}
	s.fail, s.hook = nil, nil
	c := b.command()
	c.Payload = json.RawMessage(`{"item":"nuts","count":99}`)
	reply, _ := b.send(c)
	assert.Equal(t, topics.SagaNotDone, reply.Outcome, "a constraint is the step's failure, not a fault of the record")
	assert.Contains(t, reply.Failure.Message, "stock_left_over_check")
	c = b.command()
	c.Payload = json.RawMessage(`{"count":"three"}`)
	reply, _ = b.send(c)
	assert.Equal(t, "bad_payload", reply.Failure.Reason)
	assert.False(t, reply.Failure.Retryable)
	assert.Equal(t, 10, b.left())
}

func TestACompensationUndoesWhatWasDoneAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, (&shop{}).saga())
	c := b.command()
	_, _ = b.send(c)
	u := b.undo(c) // its payload does not know how many were reserved: the saga is in doubt
	reply, _ := b.send(u)
	assert.Equal(t, topics.SagaDone, reply.Outcome)
	assert.JSONEq(t, `{"reserved":null}`, string(reply.Output))
	assert.Equal(t, 10, b.left())
	for _, repeated := range []topics.SagaCommand{u, b.again(u)} {
		reply, _ = b.send(repeated)
		assert.Equal(t, topics.SagaDone, reply.Outcome)
		assert.Equal(t, 10, b.left())
	}
	reply, _ = b.send(c)
	assert.Equal(t, topics.SagaDone, reply.Outcome, "what was done and undone is not done again")
	assert.Equal(t, 10, b.left())
}

func TestACommandAfterItsCompensationIsRefused(t *testing.T) {
	t.Parallel()
	s := &shop{}
	b := newBench(t, s.saga())
	c := b.command()
	reply, _ := b.send(b.undo(c))
	assert.Equal(t, topics.SagaDone, reply.Outcome, "there was nothing to undo")
	assert.Equal(t, 10, b.left())
	reply, _ = b.send(c)
	assert.Equal(t, topics.SagaRefused, reply.Outcome)
	assert.Equal(t, "compensated", reply.Failure.Reason)
	assert.Equal(t, 10, b.left())

	// The same after an attempt that failed.
	s.fail = errors.New("no")
	failed := b.command()
	_, _ = b.send(failed)
	s.fail = nil
	_, _ = b.send(b.undo(failed))
	reply, _ = b.send(b.again(failed))
	assert.Equal(t, topics.SagaRefused, reply.Outcome)
	assert.Equal(t, 10, b.left())
}

func TestALateCommandIsNotBegunAndALateCompensationIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, (&shop{}).saga())
	c := b.command()
	c.Deadline = in(-time.Second)
	reply, _ := b.send(c)
	assert.Equal(t, topics.SagaRefused, reply.Outcome)
	assert.Equal(t, "late", reply.Failure.Reason)
	assert.True(t, reply.Failure.Retryable, "another attempt has another deadline")
	assert.Equal(t, 10, b.left())
	c = b.again(c)
	c.Deadline = in(time.Hour)
	_, _ = b.send(c)
	assert.Equal(t, 7, b.left())
	u := b.undo(c)
	u.Deadline = in(-time.Second)
	_, _ = b.send(u)
	assert.Equal(t, 10, b.left())
}

func TestACompensationThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := &shop{}
	b := newBench(t, s.saga())
	c := b.command()
	_, _ = b.send(c)
	s.fail = errors.New("not now")
	u := b.undo(c)
	reply, _ := b.send(u)
	assert.Equal(t, topics.SagaNotDone, reply.Outcome)
	assert.Equal(t, 7, b.left())
	s.fail = nil
	_, _ = b.send(b.again(u))
	assert.Equal(t, 10, b.left())
}

func TestCommandsOfOthersAndUnknownOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t, (&shop{}).saga())
	other := b.command()
	other.Participant = "bank"
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.Done}, b.Feed(other))
	assert.Empty(t, b.Published())

	// A program of another version: nothing is lost, and what follows for the saga waits.
	unknown := b.command()
	unknown.Type = "wrap"
	known := b.command()
	elsewhere := b.command()
	elsewhere.SagaID = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34"
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered, pipelinetest.Parked, pipelinetest.Done}, b.Feed(unknown, known, elsewhere))
	require.Len(t, b.DeadLetters(), 1)
	assert.Contains(t, b.DeadLetters()[0].Reason, `participant order does not know it: in this program saga order has the steps "reserve", "pay": run a program that does`)
	assert.Equal(t, 7, b.left())

	wrong := b.undo(elsewhere)
	wrong.Type = "reserve"
	assert.Equal(t, []pipelinetest.Outcome{pipelinetest.DeadLettered}, b.Feed(wrong))
}

func TestManyCommandsShareATransactionAndNotTheirFailures(t *testing.T) {
	t.Parallel()
	s := &shop{}
	calls := 0
	s.hook = func() {
		if calls++; calls == 2 {
			panic("the second")
		}
	}
	b := newBench(t, s.saga())
	b.Feed(b.command(), b.command(), b.command())
	assert.Equal(t, 4, b.left())
	var outcomes []string
	for _, e := range b.PublishedEnvelopes() {
		if r, ok := e.Event.(topics.SagaReply); ok {
			outcomes = append(outcomes, r.Outcome)
		}
	}
	assert.Equal(t, []string{"done", "failed", "done"}, outcomes)
}

type charge struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

type receipt struct {
	Payment string `json:"payment"`
}

func TestAParticipantOfItsOwn(t *testing.T) {
	t.Parallel()
	var refunded []string
	bank := sagas.NewParticipant("bank",
		sagas.Handle("charge", func(_ context.Context, tx sagas.Tx, in charge) (receipt, error) {
			if in.Count > 5 {
				return receipt{}, sagas.Fail("too_much", "%d %s", in.Count, in.Item)
			}
			return receipt{Payment: "p-" + tx.Command().CommandID[:4]}, nil
		}),
		sagas.Undo("refund", func(_ context.Context, _ sagas.Tx, in charge, done receipt) error {
			refunded = append(refunded, in.Item, done.Payment)
			return nil
		}),
	)
	require.NoError(t, bank.Validate())
	tx, err := database(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	h := pipelinetest.New(t, bank.Consumer(), pipelinetest.WithTx(tx))
	c := topics.SagaCommand{
		SagaID: "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34", Saga: "order", CommandID: "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a35",
		Participant: "bank", Type: "charge", Step: "pay", Attempt: 1, Issue: 1, Payload: json.RawMessage(`{"item":"nuts","count":3}`),
	}
	h.Feed(c)
	u := c
	u.CommandID, u.Type, u.Compensation, u.CompensatesCommandID = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a36", "refund", true, c.CommandID
	h.Feed(u, u)
	assert.Equal(t, []string{"nuts", "p-0193"}, refunded)
}
