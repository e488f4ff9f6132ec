package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

const (
	// concurrent is how many triggers are made for at once.
	concurrent = 16
	// waitMin and waitMax bound the time between two attempts at a firing that cannot be
	// made; overlapMax that for one that waits for the firing before it.
	waitMin    = time.Second
	waitMax    = time.Minute
	overlapMax = 3 * time.Second
	// lastWords is how long it may take to write what was made when the process stops.
	lastWords = 5 * time.Second
	// knownMax is how many compiled triggers are kept.
	knownMax = 20_000
)

// Triggers reads triggers as they are now.
type Triggers interface {
	// ByUID returns the triggers with these uids; those that there are not are left out.
	ByUID(ctx context.Context, uids []string) ([]trigger.Stored, error)
}

// RunnerConfig is what a Runner works with.
type RunnerConfig struct {
	Store    *Store
	Creator  ingest.Creator
	Triggers Triggers
	Targets  Targets
	// Compile makes a trigger ready.
	Compile func(trigger.Stored) (*trigger.Compiled, error)
	Log     *slog.Logger
}

// Runner makes the targets of firings. It is safe for concurrent use.
type Runner struct {
	config RunnerConfig
	log    *slog.Logger

	mu sync.Mutex
	// known are triggers that were compiled, by uid.
	known map[string]*trigger.Compiled
}

// NewRunner returns a runner.
func NewRunner(c RunnerConfig) *Runner {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Runner{config: c, log: c.Log, known: map[string]*trigger.Compiled{}}
}

// Push makes the targets of tasks that nobody has taken yet. Nothing is lost when it
// fails: what it does not settle is found in the table.
func (r *Runner) Push(ctx context.Context, tasks []topics.ScheduleTask) error {
	taken, err := r.config.Store.TakePushed(ctx, tasks)
	if err != nil || len(taken) == 0 {
		return err
	}
	return r.Make(ctx, taken)
}

// Make makes the targets of firings and writes what became of each.
func (r *Runner) Make(ctx context.Context, taken []Taken) error {
	crash.At("schedule.taken")
	groups := map[string][]Taken{}
	var uids []string
	for _, t := range taken {
		if groups[t.UID] == nil {
			uids = append(uids, t.UID)
		}
		groups[t.UID] = append(groups[t.UID], t)
	}
	found, err := r.config.Triggers.ByUID(ctx, uids)
	if err != nil {
		return fmt.Errorf("read triggers of firings: %w", err)
	}
	triggers := make(map[string]trigger.Stored, len(found))
	for _, t := range found {
		triggers[t.UID] = t
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, concurrent)
	verdicts := make([][]Verdict, len(uids))
	for i, uid := range uids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			group := groups[uid]
			slices.SortFunc(group, func(a, b Taken) int { return a.ScheduledAt.Compare(b.ScheduledAt) })
			t, exists := triggers[uid]
			verdicts[i] = r.group(ctx, t, exists, group)
		})
	}
	all.Wait()
	crash.At("schedule.made")
	list := slices.Concat(verdicts...)
	if ctx.Err() == nil {
		return r.config.Store.Settle(ctx, list)
	}
	// This process stops, or is not the one any more. That is no fault of what it could not
	// make: others take it at once.
	for i := range list {
		if list[i].Status == Due {
			list[i].Wait, list[i].Cause = 0, nil
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	return errors.Join(r.config.Store.Settle(last, list), ctx.Err())
}

// compiled returns a trigger as it can be run.
func (r *Runner) compiled(t trigger.Stored) (*trigger.Compiled, error) {
	r.mu.Lock()
	known := r.known[t.UID]
	r.mu.Unlock()
	if known != nil && known.Revision == t.Revision {
		return known, nil
	}
	c, err := r.config.Compile(t)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= knownMax {
		clear(r.known) // some are gone for good; the others are back soon
	}
	r.known[t.UID] = c
	return c, nil
}

// group makes the targets of the firings of one trigger, in the order of their times.
// Whatever happens to it stays with it.
func (r *Runner) group(ctx context.Context, t trigger.Stored, exists bool, list []Taken) (verdicts []Verdict) {
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(ctx, "making the target of a schedule panicked, it will be repeated",
				"trigger_id", t.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			verdicts = again(list, trigger.Cause{
				Code: "panic", Message: fmt.Sprintf("making the target panicked: %v", p), Hint: "the log of the server has the stack; please report it",
			})
		}
	}()
	switch {
	case !exists, t.Type != trigger.TypeSchedule, t.Schedule == nil:
		return skip(list, trigger.Cause{Code: "trigger_deleted", Message: "the trigger was deleted before it could be started"})
	case !t.IsEnabled():
		return skip(list, trigger.Cause{Code: "trigger_disabled", Message: "the trigger was disabled before it could be started"})
	}
	compiled, err := r.compiled(t)
	if err != nil {
		return again(list, trigger.Cause{Code: "invalid_definition", Message: err.Error(), Hint: "apply the trigger anew"})
	}
	plan, err := NewPlan(*t.Schedule, t.UID)
	if err != nil {
		return again(list, trigger.Cause{Code: "invalid_definition", Message: err.Error(), Hint: "apply the trigger anew"})
	}
	if plan.Overlap() == trigger.OverlapAllow {
		return r.create(ctx, compiled, list, false)
	}
	return r.oneByOne(ctx, compiled, plan, list)
}

// oneByOne makes targets none of which may run beside the one before it.
func (r *Runner) oneByOne(ctx context.Context, t *trigger.Compiled, plan *Plan, list []Taken) []Verdict {
	earlier, err := r.config.Store.Earlier(ctx, map[string]time.Time{t.UID: list[0].ScheduledAt}, r.config.Targets)
	if err != nil {
		return again(list, storageCause(err))
	}
	before, busy := earlier[t.UID]
	var verdicts []Verdict
	for _, f := range list {
		if !busy {
			v := r.create(ctx, t, []Taken{f}, true)[0]
			verdicts = append(verdicts, v)
			busy, before = v.Status == Started || v.Status == Due, f.ScheduledAt
			continue
		}
		why := trigger.Cause{Code: causeOverlap, Message: "what " + before.UTC().Format(time.RFC3339) + " started, or is to start, has not ended"}
		if plan.Overlap() == trigger.OverlapSkip {
			verdicts = append(verdicts, skip([]Taken{f}, why)...)
			continue
		}
		verdicts = append(verdicts, Verdict{Taken: f, Status: Due, Wait: backoff(f.Attempt, overlapMax), Cause: &why})
		before = f.ScheduledAt
	}
	return verdicts
}

// firing is what is kept with a target of what started it.
type firing struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	DueAt       time.Time `json:"due_at"`
	FiredAt     time.Time `json:"fired_at"`
	By          string    `json:"by,omitempty"`
}

// Identity is what tells a firing of a trigger from its others.
func Identity(scheduled time.Time) string {
	return "schedule:" + scheduled.UTC().Format(time.RFC3339Nano)
}

func message(t *trigger.Compiled, f Taken) ingest.Message {
	body := []byte(t.Schedule.Input)
	if len(body) == 0 {
		body = []byte("{}")
	}
	return ingest.Message{
		Body: body, Time: f.ScheduledAt.UTC(), Identity: Identity(f.ScheduledAt),
		Metadata: firing{f.ScheduledAt.UTC(), f.DueAt.UTC(), f.FiredAt.UTC(), f.By},
	}
}

// create makes targets, in as few transactions as the creator does.
func (r *Runner) create(ctx context.Context, t *trigger.Compiled, list []Taken, running bool) []Verdict {
	messages := make([]ingest.Message, len(list))
	for i, f := range list {
		messages[i] = message(t, f)
	}
	outcomes, err := r.config.Creator.Create(ctx, t, messages)
	verdicts := make([]Verdict, 0, len(list))
	for i, f := range list {
		if i == len(outcomes) {
			break
		}
		verdicts = append(verdicts, verdictOf(f, outcomes[i], running))
	}
	rest := list[len(verdicts):]
	if len(rest) == 0 {
		return verdicts
	}
	why := storageCause(err)
	if blocked, ok := errors.AsType[*ingest.BlockedError](err); ok {
		why = blocked.Cause
	}
	return append(verdicts, again(rest, why)...)
}

func verdictOf(f Taken, o ingest.Outcome, running bool) Verdict {
	v := Verdict{Taken: f, Status: Started, Target: Target{Kind: o.Kind, ID: o.ID}, Running: running}
	switch o.Status {
	case ingest.Created:
		return v
	case ingest.Duplicate:
		if o.ID != "" { // made by an attempt whose word did not get through
			return v
		}
		v.Status, v.Cause = Skipped, &trigger.Cause{Code: "duplicate", Message: "it was made before; what was made is not known any more"}
	default:
		v.Status, v.Cause = Refused, &trigger.Cause{Code: "refused", Message: "no target can be made"}
		if refusal, ok := errors.AsType[*ingest.Refusal](o.Err); ok {
			v.Cause = &trigger.Cause{Code: refusal.Code, Message: refusal.Message}
			if refusal.Code == "limit_reached" {
				v.Status = Skipped
			}
		} else if o.Err != nil {
			v.Cause.Message = o.Err.Error()
		}
	}
	v.Target, v.Running = Target{}, false
	return v
}

func storageCause(err error) trigger.Cause {
	c := trigger.Cause{Code: "storage", Message: "the database does not answer", Hint: "see the log of the server"}
	if err != nil {
		c.Message = err.Error()
	}
	return c
}

func skip(list []Taken, why trigger.Cause) []Verdict {
	verdicts := make([]Verdict, len(list))
	for i, f := range list {
		verdicts[i] = Verdict{Taken: f, Status: Skipped, Cause: &why}
	}
	return verdicts
}

// again has firings tried once more: after 1, 2, 4 .. 60 s.
func again(list []Taken, why trigger.Cause) []Verdict {
	verdicts := make([]Verdict, len(list))
	for i, f := range list {
		verdicts[i] = Verdict{Taken: f, Status: Due, Wait: backoff(f.Attempt, waitMax), Cause: &why}
	}
	return verdicts
}

// backoff is the wait after an attempt, counted from 1.
func backoff(attempt int, limit time.Duration) time.Duration {
	return min(waitMin<<min(attempt-1, 10), limit)
}
