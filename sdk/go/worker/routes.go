package worker

import (
	"context"
	"sync"

	"github.com/millrace/millrace/sdk/go/client"
)

// routes is the engine as the Executor of a Runner sees it. What is said of a job goes by
// the session that brought it, for as long as that lasts, and by a call otherwise. A report
// whose session breaks is repeated by the reporter, and goes by a call then.
type routes struct {
	client.JobClient // by calls

	mu sync.RWMutex
	of map[lease]*session
}

// lease names one lease of a job: the same job may be here twice, when the first lease was
// lost and its handler has not returned.
type lease struct {
	job   string
	token int64
}

func newRoutes(engine client.JobClient) *routes {
	return &routes{JobClient: engine, of: map[lease]*session{}}
}

// add takes note of which session brought a job. It is false if another has brought the
// same lease and it is still open.
func (r *routes) add(job client.Job, by *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := lease{job.ID, job.Token}
	if _, twice := r.of[key]; twice {
		return false
	}
	r.of[key] = by
	return true
}

func (r *routes) remove(job client.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, lease{job.ID, job.Token})
}

// session is the one to say something of a lease in, nil for none.
func (r *routes) session(job string, token int64) *session {
	r.mu.RLock()
	by := r.of[lease{job, token}]
	r.mu.RUnlock()
	if by == nil {
		return nil
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	if by.over {
		return nil
	}
	return by
}

// CompleteJob implements client.JobClient.
func (r *routes) CompleteJob(ctx context.Context, c client.Completion) error {
	if by := r.session(c.JobID, c.Token); by != nil {
		return by.stream.CompleteJobs(ctx, []client.Completion{c})[0]
	}
	return r.JobClient.CompleteJob(ctx, c)
}

// CompleteJobs implements client.JobClient.
func (r *routes) CompleteJobs(ctx context.Context, cs []client.Completion) []error {
	return divided(cs, func(c client.Completion) *session { return r.session(c.JobID, c.Token) }, func(by *session, cs []client.Completion) []error {
		if by != nil {
			return by.stream.CompleteJobs(ctx, cs)
		}
		return r.JobClient.CompleteJobs(ctx, cs)
	})
}

// FailJob implements client.JobClient.
func (r *routes) FailJob(ctx context.Context, f client.Failure) error {
	if by := r.session(f.JobID, f.Token); by != nil {
		return by.stream.FailJob(ctx, f)
	}
	return r.JobClient.FailJob(ctx, f)
}

// Heartbeat implements client.JobClient. That no beat got through, or is known at all, is
// the error of the whole.
func (r *routes) Heartbeat(ctx context.Context, beats []client.Beat) ([]client.BeatResult, error) {
	results := divided(beats, func(b client.Beat) *session { return r.session(b.JobID, b.Token) }, func(by *session, beats []client.Beat) []beaten {
		var answers []client.BeatResult
		var err error
		if by != nil {
			answers, err = by.stream.Heartbeat(ctx, beats)
		} else {
			answers, err = r.JobClient.Heartbeat(ctx, beats)
		}
		out := make([]beaten, len(beats))
		for i := range out {
			if out[i].whole = err; err == nil && i < len(answers) {
				out[i].BeatResult = answers[i]
			}
		}
		return out
	})
	answers := make([]client.BeatResult, len(results))
	var failed int
	for i, b := range results {
		answers[i] = b.BeatResult
		if b.whole != nil {
			failed++
			answers[i].Err = b.whole
		}
	}
	if failed > 0 && failed == len(results) {
		return nil, results[0].whole
	}
	return answers, nil
}

// beaten is the answer to a beat, or why there was none.
type beaten struct {
	client.BeatResult
	whole error
}

// divided has items go by their sessions, side by side, and returns what came of each.
func divided[In, Out any](items []In, of func(In) *session, call func(by *session, items []In) []Out) []Out {
	places := map[*session][]int{}
	for i, item := range items {
		by := of(item)
		places[by] = append(places[by], i)
	}
	if len(places) == 1 {
		for by := range places {
			return call(by, items)
		}
	}
	out := make([]Out, len(items))
	var calls sync.WaitGroup
	for by, places := range places {
		part := make([]In, len(places))
		for i, place := range places {
			part[i] = items[place]
		}
		calls.Go(func() {
			for i, answer := range call(by, part) {
				out[places[i]] = answer
			}
		})
	}
	calls.Wait()
	return out
}
