package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

const (
	// nextRetryMin is how long after it could not be started the instance that is to follow
	// another one is tried again. That doubles, up to nextRetryMax; a definition that is
	// uploaded has all tried at once.
	nextRetryMin = time.Second
	nextRetryMax = 5 * time.Minute
	// hasteBatch is how many are tried at once then.
	hasteBatch = 1000

	// chainInput is the input in the journal that says that the next one was started late.
	chainInput workflow.Kind = "next_started"
)

// chain starts the instance that follows one that has completed. When that cannot be,
// because its definition is not there for example, it is owed: the journal and Get say
// so, and a row of wf_timers has it tried again until it succeeds, or the instance goes
// after its retention.
func (u *unit) chain(ctx context.Context, l *live, definition string) {
	next, err := u.follower(ctx, l, definition)
	switch {
	case u.fault != nil:
	case err == nil:
		l.next = next.id
	default:
		u.engine.log.WarnContext(ctx, "the workflow that follows another one cannot be started, this will be repeated",
			"instance_id", l.id, "definition", l.definition, "next_definition", definition, "error", err)
		l.state.Owed = definition
		u.setTimer(timerKey{instance: l.id, kind: timerNext}, u.now.Add(nextRetryMin))
		u.tally.delayed++
		u.tellMore(l, workflow.Entry{
			Kind: workflow.NextDelayed, Name: definition, Failure: &workflow.Failure{Code: CodeStart, Message: text(err.Error())},
		})
	}
}

// tellMore adds a line to the journal of the input that an instance has just taken.
func (u *unit) tellMore(l *live, e workflow.Entry) {
	for i := len(u.journal) - 1; i >= 0; i-- {
		if j := &u.journal[i]; j.instance == l.id {
			j.entries = append(j.entries, e)
			return
		}
	}
}

// chainAgain tries again to start what is owed; tried counts the attempts.
func (u *unit) chainAgain(ctx context.Context, l *live, tried int) {
	if l.state.Owed == "" || l.next != uuid.Nil {
		return
	}
	next, err := u.follower(ctx, l, l.state.Owed)
	switch {
	case u.fault != nil:
	case err == nil:
		l.next = next.id
		l.state.Version++
		l.updatedAt, l.changed = u.now, true
		u.journal = append(u.journal, journalRow{
			instance: l.id, version: l.state.Version, at: u.now, input: chainInput,
			entries: []workflow.Entry{{Kind: workflow.NextStarted, Name: l.state.Owed}},
		})
		l.state.Owed = ""
		u.tally.late++
	default:
		u.engine.log.DebugContext(ctx, "the workflow that follows another one cannot be started yet",
			"instance_id", l.id, "next_definition", l.state.Owed, "error", err)
		wait := min(nextRetryMin<<min(tried+1, 20), nextRetryMax)
		u.setTimer(timerKey{instance: l.id, kind: timerNext, index: tried + 1}, u.now.Add(wait))
	}
}

// follower starts the instance that follows another one. With a fault of the unit it has
// no result.
func (u *unit) follower(ctx context.Context, l *live, definition string) (*live, error) {
	plan, version, err := u.engine.config.Plans.Plan(ctx, definition, 0)
	if u.broken(err) || err != nil {
		return nil, err
	}
	u.chained++
	return u.plant(ctx, seed{plan: plan, row: row{
		id: newID(), kind: kindOf(plan), definition: definition, definitionVersion: version,
		businessKey: l.businessKey, tenant: l.tenant, user: l.user, priority: l.priority, correlation: l.correlation,
		previous: l.id, state: workflow.State{Variables: l.variables()},
	}}, u.chained > maxChained)
}

// hasten has all that is owed tried at once. What others have locked is tried when it is
// due.
func (e *Engine) hasten(ctx context.Context) error {
	_, err := e.config.Pool.Exec(ctx, `
		UPDATE wf_timers t SET due_at = clock_timestamp()
		FROM (
			SELECT instance_id, step, kind, index FROM wf_timers
			WHERE kind = 'next' AND due_at > clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED
		) AS owed
		WHERE t.instance_id = owed.instance_id AND t.step = owed.step AND t.kind = owed.kind AND t.index = owed.index`,
		hasteBatch)
	if err != nil {
		return fmt.Errorf("hasten workflows that are to follow others: %w", err)
	}
	return nil
}
