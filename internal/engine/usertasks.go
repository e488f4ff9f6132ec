package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

// The statuses of user tasks.
const (
	taskOpen      = "OPEN"
	taskClaimed   = "CLAIMED"
	taskCompleted = "COMPLETED"
	taskCancelled = "CANCELLED"
)

// taskKey identifies the user tasks of a step.
type taskKey struct {
	instance uuid.UUID
	step     string
}

// taskRow is the latest user task of a step.
type taskRow struct {
	activity         int
	status, assignee string
}

// CompleteUserTask ends a task and leads its instance on. Completing it again is no error
// while the instance goes on, and ErrConflict once it has ended, as the contract has it; a
// step without a task is ErrNotFound, one whose task is not open ErrConflict.
func (e *Engine) CompleteUserTask(ctx context.Context, c CompleteUserTaskRequest) error {
	if err := errors.Join(storable("step id", c.StepID), storable("actor", c.Actor)); err != nil {
		return err
	}
	if c.StepID == "" {
		return workflow.Refuse(ErrInvalid, "a step id is required")
	}
	r := newRequest(needs{instance: c.InstanceID, task: c.StepID}, func(ctx context.Context, u *unit) error {
		l, err := u.find(c.InstanceID)
		if err != nil {
			return err
		}
		key := taskKey{c.InstanceID, c.StepID}
		task, ok := u.tasks[key]
		switch {
		case !ok:
			return noTask(l, c.StepID)
		case task.status == taskCompleted && l.state.Status.Final():
			return workflow.Refuse(ErrConflict, "the user task of step %s is completed and its instance is %s", c.StepID, l.state.Status)
		case task.status == taskCompleted:
			return nil
		case task.status == taskClaimed && c.Actor != "" && task.assignee != c.Actor:
			return workflow.Refuse(ErrConflict, "the user task of step %s is claimed by %q", c.StepID, task.assignee)
		}
		err = u.advance(ctx, l, workflow.Input{Kind: workflow.UserTaskCompleted, Name: c.StepID, Result: c.Variables, Actor: c.Actor})
		if err != nil {
			return err
		}
		if isOpen(l, task.activity) { // the instance is suspended and has put it off
			u.endTasks = append(u.endTasks, endTask{activityKey{l.id, task.activity}, taskCompleted, c.Actor, u.now})
		}
		task.status = taskCompleted
		u.tasks[key] = task
		return nil
	})
	r.weight = len(c.Variables)
	return e.ask(ctx, r)
}

// noTask words that a step has no user task.
func noTask(l *live, step string) error {
	for i := range l.plan.Definition().Steps {
		s := &l.plan.Definition().Steps[i]
		switch {
		case s.ID != step:
		case s.Type != workflow.UserTask:
			return workflow.Refuse(ErrConflict, "step %s is a %s and no USER_TASK", step, s.Type)
		default:
			return fmt.Errorf("the user task of step %s has not begun (instance %s is %s): %w", step, l.id, l.state.Status, ErrNotFound)
		}
	}
	return fmt.Errorf("instance %s has no step %s: %w", l.id, step, ErrNotFound)
}

func isOpen(l *live, activity int) bool {
	_, open := openActivities(l.state)[activity]
	return open
}

// loadTasks reads the latest user task of each step.
func (u *unit) loadTasks(b *writes, keys []taskKey) {
	ids, steps := make([]uuid.UUID, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		ids[i], steps[i] = k.instance, k.step
	}
	b.Queue(`
		SELECT DISTINCT ON (t.instance_id, t.step_id) t.instance_id, t.step_id, t.activity, t.status, coalesce(t.assignee, '')
		FROM unnest($1::uuid[], $2::text[]) AS u(instance_id, step_id)
		JOIN wf_user_tasks t ON t.instance_id = u.instance_id AND t.step_id = u.step_id
		ORDER BY t.instance_id, t.step_id, t.activity DESC`, ids, steps).Query(func(rows pgx.Rows) error {
		var k taskKey
		var t taskRow
		_, err := pgx.ForEachRow(rows, []any{&k.instance, &k.step, &t.activity, &t.status, &t.assignee}, func() error {
			u.tasks[k] = t
			return nil
		})
		return err
	})
}

// writeTasks queues user tasks that begin, and those that end.
func (u *unit) writeTasks(b *writes) {
	for _, t := range u.newTasks {
		a := t.activity
		name, label := a.Step.StepID, a.JobType
		for i := range t.live.plan.Definition().Steps {
			if s := &t.live.plan.Definition().Steps[i]; s.ID == a.Step.StepID {
				name = s.Name
			}
		}
		groups := a.Groups
		if groups == nil {
			groups = []string{}
		}
		var input *string
		if a.Input != nil {
			input = null(string(a.Input))
		}
		b.Queue(`INSERT INTO wf_user_tasks (instance_id, activity, step, step_id, name, label, assignee, groups, due_at, input, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::json, $11)`,
			t.live.id, a.N, a.Step.N, a.Step.StepID, name, label, null(a.Assignee), groups, null(a.DueAt), input, t.at)
	}
	for _, t := range u.endTasks {
		b.Queue(`UPDATE wf_user_tasks SET status = $3, finished_at = $4, finished_by = $5
			WHERE instance_id = $1 AND activity = $2 AND status IN ('OPEN', 'CLAIMED')`,
			t.instance, t.activity, t.status, t.at, null(t.by))
	}
}

// ClaimUserTask takes an open task for a user. Claiming what the user has already is no
// error; what somebody else has is ErrConflict.
func (e *Engine) ClaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (UserTask, error) {
	if user == "" {
		return UserTask{}, workflow.Refuse(ErrInvalid, "a user is required")
	}
	return e.changeTask(ctx, id, stepID, user, `
		UPDATE wf_user_tasks SET status = 'CLAIMED', assignee = $3, claimed_at = CASE status WHEN 'CLAIMED' THEN claimed_at ELSE clock_timestamp() END
		WHERE instance_id = $1 AND activity = (SELECT max(activity) FROM wf_user_tasks WHERE instance_id = $1 AND step_id = $2)
			AND (status = 'OPEN' AND (assignee IS NULL OR assignee = $3) OR status = 'CLAIMED' AND assignee = $3)`)
}

// UnclaimUserTask gives a task back, which only its user may; an empty user always may. It
// is free for anybody then.
func (e *Engine) UnclaimUserTask(ctx context.Context, id uuid.UUID, stepID, user string) (UserTask, error) {
	return e.changeTask(ctx, id, stepID, user, `
		UPDATE wf_user_tasks SET status = 'OPEN', assignee = NULL, claimed_at = NULL
		WHERE instance_id = $1 AND activity = (SELECT max(activity) FROM wf_user_tasks WHERE instance_id = $1 AND step_id = $2)
			AND (status = 'CLAIMED' AND ($3 = '' OR assignee = $3) OR status = 'OPEN' AND assignee IS NULL)`)
}

// changeTask runs a statement on the latest user task of a step and returns the task as it
// is then. That no row was changed is a conflict.
func (e *Engine) changeTask(ctx context.Context, id uuid.UUID, stepID, user, sql string) (UserTask, error) {
	if err := errors.Join(storable("step id", stepID), storable("user", user)); err != nil {
		return UserTask{}, err
	}
	tag, err := e.config.Pool.Exec(ctx, sql, id, stepID, user)
	if err != nil {
		return UserTask{}, fmt.Errorf("change user task: %w", err)
	}
	rows, err := e.config.Pool.Query(ctx, selectTasks+` WHERE t.instance_id = $1 AND t.step_id = $2 ORDER BY t.activity DESC LIMIT 1`, id, stepID)
	if err != nil {
		return UserTask{}, fmt.Errorf("read user task: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanTask)
	switch {
	case err != nil:
		return UserTask{}, fmt.Errorf("read user task: %w", err)
	case len(found) == 0:
		return UserTask{}, fmt.Errorf("user task of step %s of instance %s: %w", stepID, id, ErrNotFound)
	case tag.RowsAffected() == 0:
		t := found[0]
		return UserTask{}, workflow.Refuse(ErrConflict, "the user task of step %s is %s%s", stepID, t.Status, whose(t))
	}
	return found[0], nil
}

func whose(t UserTask) string {
	if t.Assignee == "" {
		return ""
	}
	return fmt.Sprintf(", assigned to %q", t.Assignee)
}

// selectTasks reads what scanTask takes in.
const selectTasks = `
	SELECT t.instance_id, t.activity, t.step_id, t.name, t.label, i.definition_id, coalesce(i.business_key, ''), t.status,
		coalesce(t.assignee, ''), t.groups, t.due_at, t.created_at, t.claimed_at, t.finished_at, coalesce(t.finished_by, ''),
		coalesce(t.input, i.variables)::text
	FROM wf_user_tasks t JOIN wf_instances i ON i.id = t.instance_id`

func scanTask(r pgx.CollectableRow) (UserTask, error) {
	var t UserTask
	var due, claimed, ended *time.Time
	var variables string
	err := r.Scan(&t.InstanceID, &t.Activity, &t.StepID, &t.Name, &t.Label, &t.DefinitionID, &t.BusinessKey, &t.Status,
		&t.Assignee, &t.Groups, &due, &t.CreatedAt, &claimed, &ended, &t.EndedBy, &variables)
	t.DueAt, t.ClaimedAt, t.EndedAt = deref(due), deref(claimed), deref(ended)
	t.Variables = json.RawMessage(variables)
	return t, err
}
