package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/topics"
)

// Pods is the ledger of the pods that executions run in. A fact is told by an event of
// its execution, which counts among its versions, also after the execution has ended;
// row and event are written in one transaction, under the row lock of the execution.
type Pods struct{ store *Store }

var _ pods.Ledger = Pods{}

// Pods returns the ledger of pods.
func (s *Store) Pods() Pods { return Pods{s} }

// Record implements pods.Ledger. A fact is passed over when a later phase of its pod is
// known already, so whoever tells of a pod tells all that is known, from the beginning.
// Telling again costs one look at the table. Of many executions facts are recorded part by
// part, so an error may leave some recorded.
func (p Pods) Record(ctx context.Context, facts []pods.Fact) error {
	told, err := arrange(facts)
	if err != nil {
		return fmt.Errorf("record facts about pods: %w", err)
	}
	known, err := knownPods(ctx, p.store.pool, told)
	if err != nil {
		return fmt.Errorf("record facts about pods: %w", err)
	}
	for part := range parts(news(told, known)) {
		if err := p.store.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return record(ctx, tx, part) }); err != nil {
			return fmt.Errorf("record facts about pods: %w", err)
		}
		crash.At("pods.recorded")
	}
	return nil
}

// recordedAtOnce is of how many executions facts are recorded in one transaction: heartbeats
// pass over those that it has locked.
const recordedAtOnce = 100

// parts yields arranged facts in parts, each with all of the executions that it is about.
func parts(told []pods.Fact) iter.Seq[[]pods.Fact] {
	return func(yield func([]pods.Fact) bool) {
		from, executions := 0, 0
		for i := range told {
			if i > 0 && told[i].ExecutionID == told[i-1].ExecutionID {
				continue
			}
			if executions++; executions > recordedAtOnce {
				if !yield(told[from:i]) {
					return
				}
				from, executions = i, 1
			}
		}
		if from < len(told) {
			yield(told[from:])
		}
	}
}

// podKey names a pod among all.
type podKey struct{ execution, uid string }

// keyOf names the pod that a fact is about.
func keyOf(f pods.Fact) podKey { return podKey{f.ExecutionID, f.UID} }

// place is how manieth a phase is, from 1; 0 is none. Succeeded and Failed exclude each
// other and have the same place.
func place(p pods.Phase) int {
	switch p {
	case pods.Created:
		return 1
	case pods.Scheduled:
		return 2
	case pods.Running:
		return 3
	case pods.Succeeded, pods.Failed:
		return 4
	case pods.Deleted:
		return 5
	default:
		return 0
	}
}

// arrange puts the facts of each pod together, in the order of their phases. Those that
// cannot be about an execution are left out.
func arrange(facts []pods.Fact) ([]pods.Fact, error) {
	told := make([]pods.Fact, 0, len(facts))
	for _, f := range facts {
		switch {
		case f.UID == "" || f.Namespace == "" || f.Name == "":
			return nil, errors.New("a pod without uid, namespace and name")
		case place(f.Phase) == 0:
			return nil, fmt.Errorf("pod %s/%s: unknown phase %q", f.Namespace, f.Name, f.Phase)
		case checkID(f.ExecutionID) == nil:
			f.ExecutionID = strings.ToLower(f.ExecutionID)
			told = append(told, f)
		}
	}
	slices.SortStableFunc(told, func(a, b pods.Fact) int {
		return cmp.Or(cmp.Compare(a.ExecutionID, b.ExecutionID), cmp.Compare(a.UID, b.UID), cmp.Compare(place(a.Phase), place(b.Phase)))
	})
	return told, nil
}

// news returns the facts that lead further than what is known of their pods, which are
// arranged.
func news(told []pods.Fact, known map[podKey]pods.Phase) []pods.Fact {
	at := make(map[podKey]int, len(known))
	for key, phase := range known {
		at[key] = place(phase)
	}
	var fresh []pods.Fact
	for _, f := range told {
		if n := place(f.Phase); n > at[keyOf(f)] {
			at[keyOf(f)] = n
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// knownPods returns the phases of the pods that facts are about, as far as there are rows.
func knownPods(ctx context.Context, db querier, told []pods.Fact) (map[podKey]pods.Phase, error) {
	known := map[podKey]pods.Phase{}
	if len(told) == 0 {
		return known, nil
	}
	ids, uids := make([]string, len(told)), make([]string, len(told))
	for i, f := range told {
		ids[i], uids[i] = f.ExecutionID, f.UID
	}
	rows, err := db.Query(ctx, `SELECT execution_id::text, uid, phase FROM execution_pods
		WHERE (execution_id, uid) IN (SELECT * FROM unnest($1::text[]::uuid[], $2::text[]))`, ids, uids)
	if err != nil {
		return nil, fmt.Errorf("read pods: %w", err)
	}
	var key podKey
	var phase pods.Phase
	if _, err := pgx.ForEachRow(rows, []any{&key.execution, &key.uid, &phase}, func() error {
		known[key] = phase
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read pods: %w", err)
	}
	return known, nil
}

// record writes what is new, in a transaction.
func record(ctx context.Context, tx pgx.Tx, told []pods.Fact) error {
	var ids []string
	for _, f := range told {
		if len(ids) == 0 || ids[len(ids)-1] != f.ExecutionID {
			ids = append(ids, f.ExecutionID)
		}
	}
	found, err := lockByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	known, err := knownPods(ctx, tx, told)
	if err != nil {
		return err
	}
	var change change
	var rows podRows
	touched := map[string]bool{}
	for _, f := range news(told, known) {
		l, exists := found[f.ExecutionID]
		if !exists {
			continue
		}
		if f.At.IsZero() {
			f.At = l.now
		}
		f.First = max(f.First, 1)
		f.Node, f.Reason, f.Message = clip(f.Node), clip(f.Reason), clean(f.Message)
		l.Pod(l.now, podEvent(f))
		rows.add(f)
		if !touched[f.ExecutionID] {
			touched[f.ExecutionID] = true
			change.touch(l.Execution)
		}
	}
	if len(rows.uids) == 0 {
		return nil
	}
	err = inBatch(ctx, tx, func(b statements) error {
		if err := rows.save(ctx, b); err != nil {
			return fmt.Errorf("write pods: %w", err)
		}
		return change.write(ctx, b)
	})
	if err == nil {
		crash.At("pods.recording")
	}
	return err
}

// wordMax is how long names and codes of the cluster may be in events.
const wordMax = 255

// clean leaves out what texts in the database cannot have.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") }

// clip is clean for a word.
func clip(s string) string { return clean(s[:min(len(s), wordMax)]) }

// unknownWord stands where an event needs a word and the cluster has given none.
const unknownWord = "Unknown"

// podEvent is the event that tells of a fact.
func podEvent(f pods.Fact) topics.Event {
	pod := topics.Pod{ExecutionID: f.ExecutionID, Attempt: f.First, PodID: f.UID, Namespace: f.Namespace, Name: f.Name}
	at := f.At.UTC()
	switch f.Phase {
	case pods.Created:
		return topics.PodCreated{Pod: pod, CreatedAt: at}
	case pods.Scheduled:
		return topics.PodScheduled{Pod: pod, Node: cmp.Or(f.Node, unknownWord), ScheduledAt: at}
	case pods.Running:
		return topics.PodRunning{Pod: pod, Node: f.Node, StartedAt: at}
	case pods.Succeeded:
		return topics.PodSucceeded{Pod: pod, Node: f.Node, FinishedAt: at}
	case pods.Failed:
		return topics.PodFailed{
			Pod: pod, Node: f.Node, Reason: cmp.Or(f.Reason, unknownWord), Message: f.Message, ExitCode: f.ExitCode, FinishedAt: at,
		}
	default:
		return topics.PodDeleted{Pod: pod, Reason: f.Reason, DeletedAt: at}
	}
}

// podRows are rows of execution_pods as arrays for unnest, each pod once.
type podRows struct {
	ids, uids, namespaces, names, phases, nodes []string
	firsts                                      []int
	created, at                                 []time.Time
	standing                                    []bool
	idle                                        []*bool // nil: as it was
}

// add takes a fact over. The facts of one pod follow each other.
func (r *podRows) add(f pods.Fact) {
	last := len(r.uids) - 1
	if last < 0 || r.uids[last] != f.UID || r.ids[last] != f.ExecutionID {
		r.ids, r.uids, r.firsts = append(r.ids, f.ExecutionID), append(r.uids, f.UID), append(r.firsts, f.First)
		r.namespaces, r.names = append(r.namespaces, f.Namespace), append(r.names, f.Name)
		r.created = append(r.created, f.At)
		r.phases, r.nodes, r.at, r.standing = append(r.phases, ""), append(r.nodes, ""), append(r.at, f.At), append(r.standing, true)
		r.idle = append(r.idle, nil)
		last++
	}
	r.phases[last], r.at[last], r.nodes[last] = string(f.Phase), f.At, cmp.Or(f.Node, r.nodes[last])
	r.standing[last] = f.Phase != pods.Deleted
	switch {
	case f.Phase == pods.Running, f.Phase == pods.Succeeded:
		r.idle[last] = new(false)
	case f.Phase == pods.Failed && f.Idle:
		r.idle[last] = new(true)
	}
}

func (r *podRows) save(ctx context.Context, tx statements) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO execution_pods AS p (execution_id, uid, first_attempt, namespace, name, phase, phase_at, node, created_at, standing, idle)
		SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
			$8::text[], $9::timestamptz[], $10::boolean[], $11::boolean[])
		ON CONFLICT (execution_id, uid) DO UPDATE SET
			phase = excluded.phase, phase_at = excluded.phase_at, node = coalesce(nullif(excluded.node, ''), p.node),
			standing = excluded.standing, idle = coalesce(excluded.idle, p.idle)`,
		r.ids, r.uids, r.firsts, r.namespaces, r.names, r.phases, r.at, r.nodes, r.created, r.standing, r.idle)
	return err
}

// Wanted implements pods.Ledger. Runs of executions that do not exist, or of no execution
// at all, are not wanted.
func (p Pods) Wanted(ctx context.Context, runs []pods.Run) ([]bool, error) {
	wanted := make([]bool, len(runs))
	var ids []string
	var firsts, places []int
	for i, r := range runs {
		if checkID(r.ExecutionID) == nil {
			ids, firsts, places = append(ids, r.ExecutionID), append(firsts, r.First), append(places, i)
		}
	}
	if len(ids) == 0 {
		return wanted, nil
	}
	// A run that the execution has not come to yet is one of before the database was
	// restored: the execution may come to it again.
	rows, err := p.store.pool.Query(ctx, `
		SELECT r.place FROM unnest($1::text[]::uuid[], $2::integer[], $3::integer[]) AS r(id, first, place)
		JOIN executions e ON e.id = r.id
		WHERE e.finished_at IS NULL AND coalesce(nullif(e.first_attempt, 0), e.attempt) <= r.first`, ids, firsts, places)
	if err != nil {
		return nil, fmt.Errorf("ask which pods are wanted: %w", err)
	}
	var at int
	if _, err := pgx.ForEachRow(rows, []any{&at}, func() error {
		wanted[at] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("ask which pods are wanted: %w", err)
	}
	return wanted, nil
}

// Standing implements pods.Ledger.
func (p Pods) Standing(ctx context.Context, after string, limit int) ([]pods.Standing, error) {
	rows, err := p.store.pool.Query(ctx, `
		SELECT execution_id::text, first_attempt, uid, namespace, name, created_at FROM execution_pods
		WHERE standing AND uid > $1 ORDER BY uid LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list standing pods: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pods.Standing, error) {
		var s pods.Standing
		err := row.Scan(&s.ExecutionID, &s.First, &s.UID, &s.Namespace, &s.Name, &s.Since)
		s.Since = s.Since.UTC()
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list standing pods: %w", err)
	}
	return found, nil
}

// Forgo implements pods.Ledger.
func (p Pods) Forgo(ctx context.Context, pod pods.Pod, verdict *pods.Verdict) error {
	if checkID(pod.ExecutionID) != nil {
		return nil
	}
	if verdict != nil {
		said := *verdict
		said.Reason, said.Message = clip(said.Reason), clean(said.Message)
		verdict = &said
	}
	_, err := p.store.pool.Exec(ctx, `UPDATE execution_pods SET verdict = $3, idle = idle OR $3::jsonb IS NULL
		WHERE execution_id = $1::text::uuid AND uid = $2`, pod.ExecutionID, pod.UID, verdict)
	if err != nil {
		return fmt.Errorf("note that a pod is given up: %w", err)
	}
	return nil
}

// Worked implements pods.Ledger.
func (p Pods) Worked(ctx context.Context, run pods.Run) (pods.Last, bool, error) {
	last := pods.Last{Pod: pods.Pod{ExecutionID: run.ExecutionID, First: run.First}}
	if checkID(run.ExecutionID) != nil {
		return last, false, nil
	}
	err := p.store.pool.QueryRow(ctx, `SELECT uid, namespace, name, phase, node, verdict FROM execution_pods
		WHERE execution_id = $1::text::uuid AND first_attempt = $2 AND (idle IS NOT TRUE OR verdict IS NOT NULL) ORDER BY created_at DESC, uid LIMIT 1`,
		run.ExecutionID, run.First).Scan(&last.UID, &last.Namespace, &last.Name, &last.Phase, &last.Node, &last.Verdict)
	if errors.Is(err, pgx.ErrNoRows) {
		return last, false, nil
	}
	if err != nil {
		return last, false, fmt.Errorf("look for the pod of a run: %w", err)
	}
	return last, true, nil
}
