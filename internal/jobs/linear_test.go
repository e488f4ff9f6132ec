package jobs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

// leaseState is a job as the model has it: all that decides what a holder is told.
type leaseState struct {
	status  jobs.Status
	token   int64
	worker  string
	expired bool
}

// leaseInput is what a client does, leaseOutput what it is told: "ok", "lost",
// "finished", or of a claim the token that it got, 0 for none.
type leaseInput struct {
	what, worker string
	token        int64
}

type leaseOutput struct {
	said  string
	token int64
}

func (s leaseState) mine(in leaseInput) bool {
	if in.token != 0 {
		return in.token == s.token
	}
	return in.worker == s.worker
}

// step returns the states that an operation may lead to, none when what the client was
// told cannot be.
func (s leaseState) step(in leaseInput, out leaseOutput) []leaseState {
	switch in.what {
	case "claim":
		return s.claim(in, out)
	case "expire":
		// Whether the lease was over when its sweep came is not told.
		if s.status == jobs.Locked {
			return []leaseState{s, {jobs.Unlocked, s.token, s.worker, true}}
		}
		return []leaseState{s}
	case "beat":
		switch {
		case s.status == jobs.Completed:
			return when(out.said == "finished", s)
		case s.status == jobs.Locked && s.mine(in):
			return when(out.said == "ok", s)
		}
		return when(out.said == "lost", s)
	}
	said, next := s.report(in)
	return when(out.said == said, next)
}

func (s leaseState) claim(in leaseInput, out leaseOutput) []leaseState {
	if out.token == 0 {
		return []leaseState{s} // somebody else may have had it locked
	}
	return when(s.status == jobs.Unlocked && out.token == s.token+1, leaseState{jobs.Locked, out.token, in.worker, s.expired})
}

// report is what completions and failures do.
func (s leaseState) report(in leaseInput) (said string, next leaseState) {
	completes := in.what == "complete"
	late := s.status == jobs.Unlocked && s.token > 0 && s.expired && s.mine(in)
	switch {
	case s.status == jobs.Locked && s.mine(in), late:
		if completes {
			return "ok", leaseState{jobs.Completed, s.token, s.worker, s.expired}
		}
		return "ok", leaseState{jobs.Unlocked, s.token, s.worker, false}
	case s.status == jobs.Completed && completes && s.mine(in):
		return "ok", s
	case s.status == jobs.Completed:
		return "finished", s
	case s.status == jobs.Unlocked && s.token > 0 && !completes && s.mine(in):
		return "ok", s // the same failure again
	}
	return "lost", s
}

func when(ok bool, s leaseState) []leaseState {
	if !ok {
		return nil
	}
	return []leaseState{s}
}

func leaseModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{leaseState{status: jobs.Unlocked}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, s := range state.(leaseState).step(input.(leaseInput), output.(leaseOutput)) {
				next = append(next, s)
			}
			return next
		},
	}
	return model.ToModel()
}

// client does random things to one job, as several workers do at once.
type client struct {
	w      *world
	job    uuid.UUID
	kind   string
	id     int
	random *rand.Rand
	// tokens are those that this client was given.
	tokens []int64
}

func (c *client) do() (leaseInput, leaseOutput, error) {
	in := leaseInput{worker: fmt.Sprint("w", c.id%2)} // two share each name
	ctx := c.w.t.Context()
	switch n := c.random.IntN(10); {
	case n < 3:
		in.what = "claim"
		list, err := c.w.Store.Claim(ctx, jobs.ClaimRequest{WorkerID: in.worker, Types: []string{c.kind}, Max: 1})
		if err != nil || len(list) == 0 {
			return in, leaseOutput{}, err
		}
		c.tokens = append(c.tokens, list[0].Token)
		return in, leaseOutput{token: list[0].Token}, nil
	case n < 5:
		in.what = "expire"
		_, err := c.w.Pool.Exec(ctx, `UPDATE jobs SET lock_expires_at = clock_timestamp() - interval '1 ms' WHERE id = $1 AND status = 'LOCKED'`, c.job)
		if err == nil {
			_, err = jobs.NewSweeper(c.w.Store, c.w.Shell).Sweep(ctx)
		}
		return in, leaseOutput{}, err
	case n < 7:
		in.what = "beat"
	case n < 9:
		in.what = "fail"
	default:
		in.what = "complete"
	}
	if len(c.tokens) > 0 && c.random.IntN(3) > 0 {
		in.token = c.tokens[max(0, len(c.tokens)-1-c.random.IntN(2))]
	}
	by := jobs.Holder{JobID: c.job, WorkerID: in.worker, Token: in.token}
	out, err := said(c.report(in.what, by))
	return in, out, err
}

func (c *client) report(what string, by jobs.Holder) error {
	ctx := c.w.t.Context()
	switch what {
	case "fail":
		return c.w.Fail(ctx, jobs.Failure{Holder: by, Retryable: true})
	case "complete":
		return c.w.complete(by)
	}
	results, err := c.w.Store.Heartbeat(ctx, []jobs.Beat{{Holder: by}})
	if err != nil {
		return err
	}
	return results[0].Err
}

func said(err error) (leaseOutput, error) {
	switch {
	case err == nil:
		return leaseOutput{said: "ok"}, nil
	case errors.Is(err, jobs.ErrLeaseLost):
		return leaseOutput{said: "lost"}, nil
	case errors.Is(err, jobs.ErrFinished):
		return leaseOutput{said: "finished"}, nil
	}
	return leaseOutput{}, err
}

// TestLeasesAreLinearizable has clients claim, extend, report and let expire one job at
// once, and checks that what they were told can have happened in some order: at most one
// of them holds it, and its completion is accepted once.
func TestLeasesAreLinearizable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const clients, each, histories = 4, 25, 6
	for h := range histories {
		kind := fmt.Sprint("kind-", h)
		job := w.begin(jobstest.Spec{JobType: kind, Retries: 1_000_000})[0]
		var mu sync.Mutex
		var history []porcupine.Operation
		var wg sync.WaitGroup
		for id := range clients {
			c := &client{w: w, job: job, kind: kind, id: id, random: rand.New(rand.NewPCG(uint64(h), uint64(id)))}
			wg.Go(func() {
				for range each {
					call := time.Now()
					in, out, err := c.do()
					ret := time.Now()
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					history = append(history, porcupine.Operation{
						ClientId: id, Input: in, Output: out, Call: call.UnixNano(), Return: ret.UnixNano(),
					})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(leaseModel(), history, patience), "history %d: %+v", h, history)
	}
}

// TestTheModelRefusesWhatMustNotBe shows that the check above can fail.
func TestTheModelRefusesWhatMustNotBe(t *testing.T) {
	t.Parallel()
	op := func(at int64, in leaseInput, out leaseOutput) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: at, Return: at + 1}
	}
	claim := op(0, leaseInput{what: "claim", worker: "w0"}, leaseOutput{token: 1})
	for what, second := range map[string]porcupine.Operation{
		"two holders":            op(2, leaseInput{what: "claim", worker: "w1"}, leaseOutput{token: 2}),
		"a stranger's report":    op(2, leaseInput{what: "complete", worker: "w1"}, leaseOutput{said: "ok"}),
		"a holder that is lost":  op(2, leaseInput{what: "beat", worker: "w0", token: 1}, leaseOutput{said: "lost"}),
		"an end that is no end":  op(2, leaseInput{what: "beat", worker: "w0"}, leaseOutput{said: "finished"}),
		"the same token for two": op(2, leaseInput{what: "claim", worker: "w0"}, leaseOutput{token: 1}),
	} {
		assert.False(t, porcupine.CheckOperations(leaseModel(), []porcupine.Operation{claim, second}), what)
	}
}

// TestJudgeIsTheModels compares Judge with the model for every kind of job that may be.
func TestJudgeIsTheModels(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := leaseState{
			status: rapid.SampledFrom([]jobs.Status{jobs.Unlocked, jobs.Locked, jobs.Completed}).Draw(rt, "status"),
			token:  rapid.Int64Range(0, 3).Draw(rt, "token"), expired: rapid.Bool().Draw(rt, "expired"),
		}
		if s.token > 0 {
			s.worker = rapid.SampledFrom([]string{"w0", "w1"}).Draw(rt, "worker")
		} else {
			s.status, s.expired = jobs.Unlocked, false
		}
		in := leaseInput{
			what:   rapid.SampledFrom([]string{"complete", "fail"}).Draw(rt, "what"),
			worker: rapid.SampledFrom([]string{"w0", "w1", "w2"}).Draw(rt, "by"), token: rapid.Int64Range(0, 3).Draw(rt, "by token"),
		}
		h := jobs.Held{Job: jobs.Job{Status: s.status, Token: s.token, WorkerID: s.worker, Attempt: 1}}
		if s.expired {
			h.Expired = 1
		}
		report := map[string]jobs.Report{"complete": jobs.Completes, "fail": jobs.Fails}[in.what]
		err := jobs.Judge(h, jobs.Holder{WorkerID: in.worker, Token: in.token}, report)
		if errors.Is(err, jobs.ErrAgain) {
			err = nil
		}
		got, err := said(err)
		require.NoError(rt, err)
		want, _ := s.report(in)
		require.Equal(rt, want, got.said, "%+v %+v", s, in)
	})
}

// TestIDsOfJobs: they are told apart, repeatable, and lie beside their instance.
func TestIDsOfJobs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		instance := uuid.Must(uuid.NewV7())
		activities := rapid.SliceOfDistinct(rapid.IntRange(1, 1<<30), rapid.ID[int]).Draw(rt, "activities")
		ids := make([]string, len(activities))
		for i, n := range activities {
			id := jobs.ID(instance, n)
			require.Equal(rt, id, jobs.ID(instance, n))
			require.Equal(rt, uuid.Version(7), id.Version())
			require.Equal(rt, uuid.RFC4122, id.Variant())
			require.Equal(rt, instance[:6], id[:6])
			ids[i] = id.String()
		}
		slices.Sort(ids)
		require.Len(rt, slices.Compact(ids), len(activities))
	})
}
