package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/workflow"
)

// written is what a unit has queued, for after the commit.
type written struct {
	jobs   jobs.Queued
	outbox outbox.Written
}

// dirty reports whether there is anything to write.
func (u *unit) dirty() bool {
	for _, l := range u.instances {
		if l.changed {
			return true
		}
	}
	w := &u.jobWrite
	return len(u.timerSet)+len(u.timerUnset)+len(u.newSignals)+len(u.usedSignals)+
		len(w.Insert)+len(w.Again)+len(w.Finish)+len(w.Cancel)+len(w.Hold)+len(w.Release) > 0
}

// write queues all that the unit leads to. Rows of instances come first: what follows
// belongs to them.
func (u *unit) write(ctx context.Context, b *writes, w *written) error {
	if err := u.writeInstances(b); err != nil {
		return err
	}
	if err := u.writeJournal(b); err != nil {
		return err
	}
	// Only a transaction of the engine's own is followed to its end.
	u.jobWrite.Handing = !u.foreign
	queued, err := u.engine.config.Jobs.Queue(&b.Batch, u.jobWrite)
	if err != nil {
		return fmt.Errorf("write jobs: %w", err)
	}
	w.jobs = queued
	u.writeTasks(b)
	u.writeWaits(b)
	u.writeOrphans(b)
	u.writeTimers(b)
	entries, err := u.entries()
	if err != nil {
		return err
	}
	entries = append(entries, queued.Entries...)
	if len(u.commands) > 0 && u.engine.config.Sagas != nil {
		commands, err := u.engine.config.Sagas.Commands(u.commands)
		if err != nil {
			return fmt.Errorf("write commands: %w", err)
		}
		entries = append(entries, commands...)
	}
	w.outbox.Reset()
	return outbox.Append(outbox.Gathering(ctx, &w.outbox), b, entries...)
}

// writeInstances queues the rows of instances: those that are new, and those that changed.
func (u *unit) writeInstances(b *writes) error {
	var fresh, changed instanceArrays
	for _, l := range u.order {
		if err := fresh.add(l); err != nil {
			return err
		}
	}
	for _, l := range u.changed() {
		if err := changed.add(l); err != nil {
			return err
		}
	}
	if len(fresh.ids) > 0 {
		fresh.insert(b)
	}
	if len(changed.ids) > 0 {
		changed.update(b)
	}
	return nil
}

// changed are the loaded instances that changed, by id.
func (u *unit) changed() []*live {
	var list []*live
	for _, l := range u.instances {
		if l.changed && !l.fresh {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *live) int { return bytes.Compare(a.id[:], b.id[:]) })
	return list
}

// instanceArrays are rows of instances, one array per column. What never changes comes
// first, as far as born.
type instanceArrays struct {
	ids                              []uuid.UUID
	kinds, definitions               []string
	definitionVersions               []int32
	businessKeys                     []*string
	tenants, users                   []string
	priorities, depths               []int16
	parents                          []*uuid.UUID
	parentActivities, parentAttempts []*int32
	executions, previous             []*uuid.UUID
	correlations, origins            []*string
	started                          []time.Time

	statuses                    []string
	versions, lifecycles, sagas []int64
	variables                   []*string
	states                      []string
	reasons, troubles           []*string
	nexts                       []*uuid.UUID
	updated                     []time.Time
	ended                       []*time.Time
}

func (a *instanceArrays) add(l *live) error {
	s := &l.state
	state, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("state of instance %s: %w", l.id, err)
	}
	if l.fresh {
		a.kinds, a.definitions = append(a.kinds, l.kind), append(a.definitions, l.definition)
		a.definitionVersions = append(a.definitionVersions, int32(l.definitionVersion))
		a.businessKeys = append(a.businessKeys, null(l.businessKey))
		a.tenants, a.users = append(a.tenants, l.tenant), append(a.users, l.user)
		a.priorities, a.depths = append(a.priorities, int16(l.priority)), append(a.depths, int16(l.depth))
		a.parents = append(a.parents, null(l.parent))
		a.parentActivities = append(a.parentActivities, null(int32(l.parentActivity)))
		a.parentAttempts = append(a.parentAttempts, null(int32(l.parentAttempt)))
		a.executions, a.previous = append(a.executions, null(l.execution)), append(a.previous, null(l.previous))
		a.correlations, a.origins = append(a.correlations, null(l.correlation)), append(a.origins, null(string(l.origin)))
		a.started = append(a.started, s.StartedAt)
	}
	a.ids = append(a.ids, l.id)
	a.statuses = append(a.statuses, string(s.Status))
	a.versions = append(a.versions, s.Version)
	a.lifecycles, a.sagas = append(a.lifecycles, l.lifecycleVersion), append(a.sagas, l.sagaVersion)
	var variables *string
	if !l.sameVariables() {
		text := string(l.variables())
		variables = &text
	}
	a.variables = append(a.variables, variables)
	a.states = append(a.states, string(state))
	a.reasons, a.troubles = append(a.reasons, null(l.failureReason)), append(a.troubles, trouble(s.Status))
	a.nexts = append(a.nexts, null(l.next))
	a.updated, a.ended = append(a.updated, l.updatedAt), append(a.ended, null(s.EndedAt))
	return nil
}

// column is an array for unnest, or none when all of it is null, which comes to the same and
// costs nothing.
func column[T any](values []*T) []*T {
	if slices.ContainsFunc(values, func(v *T) bool { return v != nil }) {
		return values
	}
	return nil
}

func (a *instanceArrays) insert(b *writes) {
	b.Queue(`
		INSERT INTO wf_instances (id, kind, definition_id, definition_version, business_key, tenant, user_id, priority, depth,
			parent_instance_id, parent_activity, parent_attempt, execution_id, previous_instance_id, correlation_id, started_at,
			status, version, lifecycle_version, saga_version, variables, state, failure_reason, trouble, next_instance_id, updated_at, ended_at, origin)
		SELECT id, kind, definition_id, definition_version, business_key, tenant, user_id, priority, depth,
			parent_instance_id, parent_activity, parent_attempt, execution_id, previous_instance_id, correlation_id, started_at,
			status, version, lifecycle_version, saga_version, variables::json, state::json, failure_reason, trouble, next_instance_id, updated_at, ended_at, origin::json
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::smallint[], $9::smallint[],
			$10::uuid[], $11::integer[], $12::integer[], $13::uuid[], $14::uuid[], $15::text[], $16::timestamptz[],
			$17::text[], $18::bigint[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::text[], $24::text[], $25::uuid[],
			$26::timestamptz[], $27::timestamptz[], $28::text[])
			AS u(id, kind, definition_id, definition_version, business_key, tenant, user_id, priority, depth,
			parent_instance_id, parent_activity, parent_attempt, execution_id, previous_instance_id, correlation_id, started_at,
			status, version, lifecycle_version, saga_version, variables, state, failure_reason, trouble, next_instance_id, updated_at, ended_at, origin)`,
		a.ids, a.kinds, a.definitions, a.definitionVersions, column(a.businessKeys), a.tenants, a.users, a.priorities, a.depths,
		column(a.parents), column(a.parentActivities), column(a.parentAttempts), column(a.executions), column(a.previous),
		column(a.correlations), a.started, a.statuses, a.versions, a.lifecycles, a.sagas, column(a.variables), a.states,
		column(a.reasons), column(a.troubles), column(a.nexts), a.updated, column(a.ended), column(a.origins))
}

func (a *instanceArrays) update(b *writes) {
	b.Queue(`
		UPDATE wf_instances i SET status = u.status, version = u.version, lifecycle_version = u.lifecycle_version,
			saga_version = u.saga_version, variables = coalesce(u.variables::json, i.variables), state = u.state::json,
			failure_reason = u.failure_reason, trouble = u.trouble, next_instance_id = u.next_instance_id,
			updated_at = u.updated_at, ended_at = u.ended_at
		FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[],
			$10::uuid[], $11::timestamptz[], $12::timestamptz[])
			AS u(id, status, version, lifecycle_version, saga_version, variables, state, failure_reason, trouble, next_instance_id, updated_at, ended_at)
		WHERE i.id = u.id`,
		a.ids, a.statuses, a.versions, a.lifecycles, a.sagas, column(a.variables), a.states,
		column(a.reasons), column(a.troubles), column(a.nexts), a.updated, column(a.ended))
}

func (u *unit) writeJournal(b *writes) error {
	n := len(u.journal)
	if n == 0 {
		return nil
	}
	var (
		ids                     = make([]uuid.UUID, n)
		versions                = make([]int64, n)
		at                      = make([]time.Time, n)
		inputs, actors, entries = make([]string, n), make([]string, n), make([]string, n)
	)
	for i, j := range u.journal {
		if j.entries == nil {
			j.entries = []workflow.Entry{}
		}
		text, err := json.Marshal(j.entries)
		if err != nil {
			return fmt.Errorf("journal of instance %s: %w", j.instance, err)
		}
		ids[i], versions[i], at[i] = j.instance, j.version, j.at
		inputs[i], actors[i], entries[i] = string(j.input), j.actor, string(text)
	}
	b.Queue(`
		INSERT INTO wf_journal (instance_id, version, at, input, actor, entries)
		SELECT id, version, at, input, actor, entries::json
		FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::text[])
			AS u(id, version, at, input, actor, entries)`, ids, versions, at, inputs, actors, entries)
	return nil
}

// writeTimers queues the changes of timers.
func (u *unit) writeTimers(b *writes) {
	if len(u.timerUnset) > 0 {
		a := timerRows(u.timerUnset)
		b.Queue(`
			DELETE FROM wf_timers t
			USING unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[]) AS u(instance_id, step, kind, index)
			WHERE t.instance_id = u.instance_id AND t.step = u.step AND t.kind = u.kind AND t.index = u.index`,
			a.ids, a.steps, a.kinds, a.indexes)
	}
	if len(u.timerSet) > 0 {
		a := timerRows(u.timerSet)
		due := make([]time.Time, len(a.keys))
		for i, key := range a.keys {
			due[i] = u.timerSet[key]
		}
		b.Queue(`
			INSERT INTO wf_timers (instance_id, step, kind, index, due_at)
			SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::timestamptz[])
			ON CONFLICT (instance_id, step, kind, index) DO UPDATE SET due_at = excluded.due_at`,
			a.ids, a.steps, a.kinds, a.indexes, due)
	}
}

// timerArrays are keys of wf_timers, one array per column.
type timerArrays struct {
	keys           []timerKey
	ids            []uuid.UUID
	steps, indexes []int32
	kinds          []string
}

// timerRows sorts keys, so that transactions that touch the same rows do so in one order.
func timerRows[V any](rows map[timerKey]V) timerArrays {
	return timerColumns(slices.SortedFunc(maps.Keys(rows), compareTimers))
}

func timerColumns(keys []timerKey) timerArrays {
	n := len(keys)
	a := timerArrays{keys: keys, ids: make([]uuid.UUID, n), steps: make([]int32, n), indexes: make([]int32, n), kinds: make([]string, n)}
	for i, k := range keys {
		a.ids[i], a.steps[i], a.kinds[i], a.indexes[i] = k.instance, int32(k.step), string(k.kind), int32(k.index)
	}
	return a
}
