package projections

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

// executionRow is what the events of one batch say about one execution. A field
// that no event spoke of is nil; each group has the version of the event that it
// comes from, 0 when there was none.
type executionRow struct {
	id        string
	request   *topics.Request
	asked     time.Time
	version   int64
	attempt   int
	state     execution.State
	stateAt   int64
	priority  priorityPart
	queued    queuedPart
	scheduled scheduledPart
	started   startedPart
	worker    workerPart
	result    resultPart
	cancel    cancelPart
}

type (
	priorityPart struct {
		at    int64
		value int
	}
	queuedPart struct {
		at        int64
		time      time.Time
		readyTime time.Time
	}
	scheduledPart struct {
		at           int64
		time         time.Time
		waitedMillis *int64
	}
	startedPart struct {
		at   int64
		time time.Time
	}
	workerPart struct {
		at   int64
		name string
	}
	resultPart struct {
		at             int64
		time           time.Time
		durationMillis *int64
		failure        topics.Failure
		stdout, stderr *int64
	}
	cancelPart struct {
		at   int64
		time time.Time
	}
)

// apply takes over what the event says, unless a later event said it already.
func (r *executionRow) apply(env topics.Envelope, event topics.Event) {
	v := env.Sequence
	if state, changes := execution.StateAfter(env.Type); changes && v > r.stateAt {
		r.state, r.stateAt = state, v
	}
	switch e := event.(type) {
	case topics.ExecutionRequested:
		r.request, r.asked = &e.Request, e.RequestedAt
		r.setPriority(priorityPart{v, e.Request.Priority})
	case topics.ExecutionReprioritized:
		r.setPriority(priorityPart{v, e.Priority})
	case topics.ExecutionQueued:
		r.reached(e.Attempt)
		r.setQueued(queuedPart{v, env.Time, e.ReadyAt})
	case topics.ExecutionScheduled:
		r.reached(e.Attempt)
		r.setScheduled(scheduledPart{v, env.Time, &e.WaitedMillis})
	case topics.ExecutionStarted:
		r.reached(e.Attempt)
		r.setStarted(startedPart{v, env.Time})
		r.setWorker(workerPart{v, e.Worker})
	case topics.ExecutionRequeued:
		// The next attempt begins anew: what belonged to the last one is cleared, and
		// only why it came to nothing stays.
		r.reached(e.Attempt)
		r.setQueued(queuedPart{v, env.Time, e.ReadyAt})
		r.setScheduled(scheduledPart{at: v})
		r.setStarted(startedPart{at: v})
		result := resultPart{at: v, failure: topics.Failure{Reason: e.Cause}}
		if e.Failure != nil {
			result.failure = *e.Failure
		}
		r.setResult(result)
	case topics.ExecutionCancelRequested:
		if v > r.cancel.at {
			r.cancel = cancelPart{v, env.Time}
		}
	default:
		r.applyEnd(env, event)
	}
}

// applyEnd takes over what an event says that ends the execution.
func (r *executionRow) applyEnd(env topics.Envelope, event topics.Event) {
	end := resultPart{at: env.Sequence, time: env.Time}
	switch e := event.(type) {
	case topics.ExecutionCompleted:
		r.reached(e.Attempt)
		end.time, end.durationMillis = e.FinishedAt, &e.DurationMillis
		end.failure.ExitCode = e.ExitCode
		end.stdout, end.stderr = &e.Stdout.Bytes, &e.Stderr.Bytes
	case topics.ExecutionFailed:
		r.reached(e.Attempt)
		end.time, end.durationMillis, end.failure = e.FinishedAt, &e.DurationMillis, e.Failure
		end.stdout, end.stderr = &e.Stdout.Bytes, &e.Stderr.Bytes
	case topics.ExecutionTimedOut:
		r.reached(e.Attempt)
		end.time, end.durationMillis, end.failure = e.FinishedAt, &e.DurationMillis, e.Failure
		end.stdout, end.stderr = &e.Stdout.Bytes, &e.Stderr.Bytes
	case topics.ExecutionCancelled:
		r.reached(e.Attempt)
		end.time, end.failure = e.FinishedAt, topics.Failure{Reason: "cancelled", Message: e.Reason}
		end.stdout, end.stderr = &e.Stdout.Bytes, &e.Stderr.Bytes
	case topics.ExecutionRejected:
		end.failure = topics.Failure{Reason: e.Reason, Message: e.Message}
	case topics.ExecutionQuarantined:
		r.reached(e.Attempt)
		end.failure = topics.Failure{Reason: "quarantined", Message: e.Message}
	default:
		return
	}
	r.setResult(end)
}

func (r *executionRow) reached(attempt int) { r.attempt = max(r.attempt, attempt) }

// stored is the priority as a value of its column, or null as long as no event told.
func (p priorityPart) stored() any {
	if p.at == 0 {
		return nil
	}
	return p.value
}

func (r *executionRow) setPriority(p priorityPart) {
	if p.at > r.priority.at {
		r.priority = p
	}
}

func (r *executionRow) setQueued(p queuedPart) {
	if p.at > r.queued.at {
		r.queued = p
	}
}

func (r *executionRow) setScheduled(p scheduledPart) {
	if p.at > r.scheduled.at {
		r.scheduled = p
	}
}

func (r *executionRow) setStarted(p startedPart) {
	if p.at > r.started.at {
		r.started = p
	}
}

func (r *executionRow) setWorker(p workerPart) {
	if p.at > r.worker.at {
		r.worker = p
	}
}

func (r *executionRow) setResult(p resultPart) {
	if p.at > r.result.at {
		r.result = p
	}
}

// nameLabel is the label that names an execution for people.
const nameLabel = "name"

// nameOf returns what an execution is called in lists: its label "name", else
// the program or the function that its spec names, else "".
func nameOf(req topics.Request) string {
	if name := req.Labels[nameLabel]; name != "" {
		return name
	}
	var spec struct {
		Command []string `json:"command"`
		Name    string   `json:"name"`
	}
	// The spec belongs to the executor: one of another shape has no name here.
	if err := json.Unmarshal(req.Spec, &spec); err != nil {
		return ""
	}
	if len(spec.Command) > 0 && spec.Command[0] != "" {
		return path.Base(spec.Command[0])
	}
	return spec.Name
}

// text returns s as a value of a text column, or null when it is empty. JSON may
// carry a NUL, PostgreSQL's text cannot, and the names of events must not decide
// whether a row can be stored. Names are cut where an index could not hold them.
func text(s string) any {
	const limit = 1024
	if s == "" {
		return nil
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}

// moment returns t as a value of a timestamptz column, or null when it is zero.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func number[N int | int64](n *N) any {
	if n == nil {
		return nil
	}
	return *n
}
