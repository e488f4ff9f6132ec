package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
)

const askers = 4

// Requests asks for executions by the API, each under an idempotency key, as often
// as it takes to get an answer.
type Requests struct {
	// Answered counts requests that led to an id, Repeats how often one was asked
	// again.
	Answered, Repeats atomic.Int64

	rate    int
	clients []*client.Client
	serial  atomic.Int64

	mu       sync.Mutex
	ids      map[string]string // execution by key
	findings *check.Findings
}

// NewRequests asks the APIs at the addresses, in turn.
func NewRequests(urls []string, token string, rate int, findings *check.Findings) (*Requests, error) {
	r := &Requests{rate: rate, ids: map[string]string{}, findings: findings}
	return r, r.Reconnect(urls, token)
}

// Reconnect asks other addresses from now on. Nobody may be asking meanwhile.
func (r *Requests) Reconnect(urls []string, token string) error {
	r.Close()
	r.clients = nil
	for _, u := range urls {
		c, err := client.New(client.Options{URL: u, Token: secret.New(token), Timeout: 8 * time.Second})
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return nil
}

// Clients are the ones in use.
func (r *Requests) Clients() []*client.Client { return r.clients }

// Close drops the connections.
func (r *Requests) Close() {
	for _, c := range r.clients {
		c.Close()
	}
}

// IDs returns the execution that each key has led to.
func (r *Requests) IDs() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string, len(r.ids))
	for k, id := range r.ids {
		out[k] = id
	}
	return out
}

// Forget drops the executions that are not among the known ones, as after a
// restore of the database.
func (r *Requests) Forget(known map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, id := range r.ids {
		if !known[id] {
			delete(r.ids, k)
		}
	}
}

// Run asks until ctx ends, and returns when every request that was begun has its
// answer, or finish ends.
func (r *Requests) Run(ctx, finish context.Context, seed uint64) {
	var all sync.WaitGroup
	for i := range askers {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		all.Go(func() {
			for {
				pause := time.Duration(float64(askers) / float64(max(1, r.rate)) * float64(time.Second) * (0.5 + rng.Float64()))
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				r.ask(finish, rng)
			}
		})
	}
	all.Wait()
}

// ask asks under a new key, now and then by two clients at once.
func (r *Requests) ask(ctx context.Context, rng *rand.Rand) {
	request := r.request(rng)
	first := rng.IntN(len(r.clients))
	var twins sync.WaitGroup
	if rng.IntN(10) == 0 {
		twins.Go(func() { r.insist(ctx, request, first+1) })
	}
	r.insist(ctx, request, first)
	twins.Wait()
}

// insist asks until there is an answer.
func (r *Requests) insist(ctx context.Context, request client.Request, api int) {
	for try := 0; ctx.Err() == nil; try++ {
		e, err := r.clients[(api+try)%len(r.clients)].Submit(ctx, request)
		if err == nil {
			r.answered(request.IdempotencyKey, e.ID)
			return
		}
		var problem *client.Problem
		if errors.As(err, &problem) && problem.Status >= 400 && problem.Status < 500 && problem.Status != 409 && problem.Status != 429 {
			r.findings.Add(check.Defect{Kind: check.Other, Check: "requests", Text: fmt.Sprintf("request %s was refused: %v", request.IdempotencyKey, err)})
			return
		}
		r.Repeats.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Flood asks for many executions at once, in batches, until all are accepted, and
// returns their ids.
func (r *Requests) Flood(ctx context.Context, requests []client.Request) ([]string, error) {
	const batch = 100
	var ids []string
	for from := 0; from < len(requests); {
		part := requests[from:min(from+batch, len(requests))]
		for i := range part {
			if part[i].IdempotencyKey == "" {
				part[i].IdempotencyKey = fmt.Sprintf("request-%d", r.serial.Add(1))
			}
		}
		outcomes, err := r.clients[0].SubmitBatch(ctx, part)
		if ctx.Err() != nil {
			return ids, ctx.Err()
		}
		if err != nil {
			continue
		}
		for i, o := range outcomes {
			if o.Problem != nil {
				return ids, o.Problem
			}
			r.answered(part[i].IdempotencyKey, o.Execution.ID)
			ids = append(ids, o.Execution.ID)
		}
		from += len(part)
	}
	return ids, nil
}

func (r *Requests) answered(key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.ids[key]; ok && before != id {
		r.findings.Add(check.Defect{Kind: check.Doubled, Check: "requests", Text: fmt.Sprintf("key %s led to execution %s and to %s", key, before, id)})
	}
	if _, ok := r.ids[key]; !ok {
		r.Answered.Add(1)
	}
	r.ids[key] = id
}

func (r *Requests) request(rng *rand.Rand) client.Request {
	key := fmt.Sprintf("request-%d", r.serial.Add(1))
	text := func(v any) json.RawMessage {
		b, _ := json.Marshal(v) // strings and lists of them can be encoded
		return b
	}
	request := client.Request{
		Executor: "function", IdempotencyKey: key, Labels: map[string]string{"workload": "chaos"},
		User: fmt.Sprintf("user-%d", rng.IntN(8)), Priority: 1 + rng.IntN(5),
	}
	switch rng.IntN(8) {
	case 0, 1:
		request.ConcurrencyKey = fmt.Sprintf("key-%d", rng.IntN(6))
	case 2:
		soon := time.Now().Add(time.Duration(rng.IntN(5)) * time.Second)
		request.NotBefore = &soon
	case 3:
		request.Requirements = &client.Requirements{Slots: 1 + rng.IntN(3)}
	}
	switch n := rng.IntN(20); {
	case n < 10:
		request.Spec = text(client.FunctionSpec{Name: "noop"})
	case n < 14:
		request.Spec = text(client.FunctionSpec{Name: "sleep", Args: json.RawMessage(`{"duration": "300ms"}`)})
	case n < 16:
		request.Spec = text(client.FunctionSpec{Name: "fail", Args: json.RawMessage(`{"message": "on request", "retryable": true}`)})
		request.Retry = &client.Retry{MaxAttempts: 2, Backoff: "100ms"}
	default:
		request.Executor = "process"
		request.Spec = text(client.ProcessSpec{Command: []string{"sh", "-c", "echo begun; sleep 0.1; echo ended"}})
	}
	return request
}
