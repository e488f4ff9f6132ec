package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/sagas"
)

// What only the newer version has: workflows with jobs, as executions too, and sagas.
// They begin while processes of the older one still read the topics, rest while there
// are only such, and end after.

// sagaProgram as the first argument has this program serve a saga, as users' programs do.
const sagaProgram = "sagas"

const flowDefinition = `{"id": "mixed", "name": "Mixed", "steps": [
	{"id": "first", "name": "First", "type": "SERVICE_TASK", "jobType": "mixed-first", "retryCount": 5, "nextStep": "pause"},
	{"id": "pause", "name": "Pause", "type": "TIMER", "duration": "PT1S", "nextStep": "second"},
	{"id": "second", "name": "Second", "type": "SERVICE_TASK", "jobType": "mixed-second", "retryCount": 5, "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

// flows drives them.
type flows struct {
	*load
	started []string // instances
	sagas   []string
	// stuck are the sagas that need attention and are resolved.
	stuck []string
}

// begin starts n of each.
func (f *flows) begin(ctx context.Context, n int) error {
	if _, err := f.in.db.Exec(ctx, `CREATE TABLE IF NOT EXISTS mixed_jobs (job text NOT NULL, step text NOT NULL, instance text NOT NULL, PRIMARY KEY (instance, step));
		CREATE TABLE IF NOT EXISTS mixed_sagas (saga text NOT NULL, what text NOT NULL, PRIMARY KEY (saga, what))`); err != nil {
		return err
	}
	ok := f.insistOnNewer(ctx, "the definition", func(c *client.Client) error { _, err := c.PutDefinition(ctx, []byte(flowDefinition)); return err })
	for i := range n {
		if !ok || ctx.Err() != nil {
			return ctx.Err()
		}
		round := len(f.started)
		id, saga := uuid.NewString(), client.NewSaga{Name: tripName, ID: uuid.NewString(), State: []byte(`{}`)}
		ok = f.insistOnNewer(ctx, "instance "+id, func(c *client.Client) error {
			return ignoreConflict(c.Start(ctx, client.StartInstance{DefinitionID: "mixed", ID: id}, ""))
		})
		f.started = append(f.started, id)
		switch i % 3 {
		case 1:
			saga.State = []byte(`{"fail": true}`)
		case 2:
			saga.State = []byte(`{"fail": true, "stuck": true}`)
			f.stuck = append(f.stuck, saga.ID)
		}
		ok = ok && f.insistOnNewer(ctx, "saga "+saga.ID, func(c *client.Client) error { return ignoreConflict(c.StartSaga(ctx, saga)) })
		f.sagas = append(f.sagas, saga.ID)
		// As an execution: workers of the older version must leave it alone.
		r := client.Request{Executor: "workflow", Spec: json.RawMessage(`{"definition_id": "mixed"}`), IdempotencyKey: fmt.Sprintf("flow-%d", round)}
		f.asked.Add(1)
		ok = ok && f.insistOnNewer(ctx, r.IdempotencyKey, func(c *client.Client) error {
			e, err := c.Submit(ctx, r)
			if err == nil {
				f.accepted(r.IdempotencyKey, e.ID, client.Completed, 0)
			}
			return err
		})
	}
	return ctx.Err()
}

// ignoreConflict passes over that it is there already.
func ignoreConflict[T any](_ T, err error) error {
	if problem := (*client.Problem)(nil); errors.As(err, &problem) && problem.Status == http.StatusConflict {
		return nil
	}
	return err
}

func (f *flows) insistOnNewer(ctx context.Context, what string, fn func(*client.Client) error) bool {
	return f.insistOn(ctx, []version{newer}, what, fn)
}

// resolve decides about the sagas that need attention.
func (f *flows) resolve(ctx context.Context) {
	for _, id := range f.stuck {
		if n, err := f.in.count(ctx, `SELECT count(*) FROM wf_instances WHERE id = $1::uuid AND status = 'NEEDS_ATTENTION'`, id); err != nil || n == 0 {
			continue
		}
		f.insistOnNewer(ctx, "resolving saga "+id, func(c *client.Client) error {
			return ignoreConflict(c.DecideSaga(ctx, id, "resolve", client.SagaDecision{Reason: "it was a drill"}))
		})
	}
}

// jobs works as workers of workflows do, until ctx ends.
func (f *flows) jobs(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := f.poll(ctx, fmt.Sprintf("mixed-worker-%d", n)); err != nil {
					pause(ctx, 200*time.Millisecond)
				}
			}
		})
	}
}

func (f *flows) poll(ctx context.Context, worker string) error {
	c, ok := f.anyAPI(newer)
	if !ok {
		return errors.New("no API")
	}
	var got struct {
		Jobs []struct {
			ID         string `json:"id"`
			InstanceID string `json:"instanceId"`
			StepID     string `json:"stepId"`
			Token      int64  `json:"token"`
		} `json:"jobs"`
	}
	err := f.post(ctx, c.URL()+"/v1/jobs/poll", map[string]any{
		"workerId": worker, "jobTypes": []string{"mixed-first", "mixed-second"}, "maxJobs": 8, "wait": "1s", "leaseSeconds": 5,
	}, &got)
	if err != nil {
		return err
	}
	for _, j := range got.Jobs {
		// One effect for each job; another job for the same step of an instance is an error.
		if _, err := f.in.db.Exec(ctx, `INSERT INTO mixed_jobs (job, step, instance) VALUES ($1, $2, $3)
			ON CONFLICT (instance, step) DO UPDATE SET job = mixed_jobs.job || CASE WHEN mixed_jobs.job = excluded.job THEN '' ELSE ' ' || excluded.job END`, j.ID, j.StepID, j.InstanceID); err != nil {
			return err
		}
		if err := f.post(ctx, c.URL()+"/v1/jobs/"+j.ID+"/complete", map[string]any{"workerId": worker, "token": j.Token}, nil); err != nil {
			return err // its lease runs out, and somebody gets it again
		}
	}
	return nil
}

func (f *flows) post(ctx context.Context, url string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+f.in.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("POST %s: %s", url, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

const tripName = "mixed-trip"

// trip is the state of the saga.
type trip struct {
	// Fail: the second step cannot be taken. Stuck: the first cannot be undone either.
	Fail  bool `json:"fail,omitempty"`
	Stuck bool `json:"stuck,omitempty"`
}

func newTrip(*pgxpool.Pool) (sagas.Saga, error) {
	note := func(what string) func(context.Context, sagas.Tx, *trip) error {
		return func(ctx context.Context, tx sagas.Tx, t *trip) error {
			if what == "pay" && t.Fail || what == "unbook" && t.Stuck {
				return sagas.Fail("refused", "%s is refused", what)
			}
			_, err := tx.Exec(ctx, `INSERT INTO mixed_sagas (saga, what) VALUES ($1, $2)`, tx.Command().SagaID, what)
			return err
		}
	}
	return sagas.New[trip](tripName, sagas.Step("book", note("book"), sagas.Compensate(note("unbook"))), sagas.Step("pay", note("pay"))), nil
}
