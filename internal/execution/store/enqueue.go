package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

// Rules say which requested executions are queued, and under what limits.
type Rules struct {
	// Validate returns a stable reason and a message to refuse an execution for good,
	// or an empty reason. Nil refuses none.
	Validate func(e *execution.Execution) (reason, message string)
	// Limits are those in force; nil is none.
	Limits *limits.Set
	// UserDepth and TotalDepth are how many executions of one user, and in all, may
	// wait; 0 is any number.
	UserDepth, TotalDepth int
}

// Queue moves requested executions into the admission queue, or rejects them, in
// the caller's transaction. Ids that are unknown or have moved on already are
// skipped: a repeated event changes nothing. After the commit the caller wakes
// WakeAdmission and the outbox (Committed).
func (s *Store) Queue(ctx context.Context, tx pgx.Tx, ids []string, rules Rules) error {
	found, err := lockByID(ctx, tx, ids)
	if err != nil {
		return err
	}
	q := &queueing{store: s, rules: rules}
	for _, id := range ids {
		if l, ok := found[id]; ok && l.State == execution.Requested {
			delete(found, id) // an id that comes twice
			if err := q.judge(ctx, l); err != nil {
				return err
			}
		}
	}
	if err := q.checkDepth(ctx, tx); err != nil {
		return fmt.Errorf("check the depth of the queue: %w", err)
	}
	if err := q.checkRates(ctx, tx); err != nil {
		return err
	}
	return q.save(ctx, tx)
}

// Committed wakes those who wait for what the caller's own transaction did
// through Queue.
func (s *Store) Committed() { s.wake(WakeAdmission) }

// queueing is one call of Queue on its way.
type queueing struct {
	store   *Store
	rules   Rules
	valid   []*candidate
	flows   []admission.Flow
	buckets buckets
	change  change
}

// candidate is an execution that may be queued so far.
type candidate struct {
	loaded
	// rates are the keys of limits that reject, keys those of limits that make it wait.
	rates, keys []limits.Key
}

// judge looks at what the request alone decides.
func (q *queueing) judge(ctx context.Context, l loaded) error {
	if q.rules.Validate != nil {
		if reason, message := q.rules.Validate(l.Execution); reason != "" {
			return q.reject(l, reason, message, 0)
		}
	}
	all, err := q.rules.Limits.Keys(ctx, l.Request)
	if fault := (*limits.KeyError)(nil); errors.As(err, &fault) {
		return q.reject(l, topics.RejectedLimitKeyInvalid, fault.Error(), 0)
	}
	if err != nil {
		return fmt.Errorf("execution %s: keys of limits: %w", l.ID, err)
	}
	c := &candidate{loaded: l}
	for _, key := range all {
		limit, _ := q.rules.Limits.Lookup(key.Limit)
		if admission.Waits(limit) {
			c.keys = append(c.keys, key)
		}
		if limit.Action == limits.Reject {
			c.rates = append(c.rates, key)
		}
	}
	q.valid = append(q.valid, c)
	return nil
}

func (q *queueing) reject(l loaded, reason, message string, retryAfter time.Duration) error {
	if err := l.Reject(l.now, reason, message, retryAfter); err != nil {
		return err
	}
	q.change.touch(l.Execution)
	return nil
}

// checkRates spends the tokens of limits that reject, and queues what had them.
func (q *queueing) checkRates(ctx context.Context, tx pgx.Tx) error {
	var keys []limits.Key
	for _, c := range q.valid {
		keys = append(keys, c.rates...)
	}
	if len(keys) > 0 {
		var err error
		if q.buckets, err = lockBuckets(ctx, tx, keys); err != nil {
			return err
		}
	}
	queued := make([]loaded, len(q.valid))
	for i, c := range q.valid {
		queued[i] = c.loaded
	}
	turn, err := takeTurns(ctx, tx, queued)
	if err != nil {
		return err
	}
	for _, c := range q.valid {
		if limit, wait := q.spend(c); wait > 0 {
			message := fmt.Sprintf("the limit %q (%s) lets no more through now", limit.Name, limit.Rate)
			if err := q.reject(c.loaded, topics.RejectedRateLimited, message, wait); err != nil {
				return err
			}
			continue
		}
		if err := q.enqueue(c, turn.behind[c.ID]); err != nil {
			return err
		}
	}
	return nil
}

// spend takes a token of each key, or none: then it returns the limit to wait for
// the longest, and how long.
func (q *queueing) spend(c *candidate) (limits.Definition, time.Duration) {
	var last limits.Definition
	var longest time.Duration
	after := make([]int64, len(c.rates))
	for i, key := range c.rates {
		limit, _ := q.rules.Limits.Lookup(key.Limit)
		next, wait := limit.Take(q.buckets.all[key].Tat, q.buckets.now.UnixNano(), 1)
		if after[i] = next; wait > longest {
			last, longest = limit, wait
		}
	}
	if longest > 0 {
		return last, longest
	}
	for i, key := range c.rates {
		q.buckets.all[key].Tat = after[i]
	}
	return last, 0
}

// enqueue queues an execution; behind says that it comes after another one with its
// concurrency key.
func (q *queueing) enqueue(c *candidate, behind bool) error {
	r := c.Request
	flow := admission.NewFlow(r.ResourceClass, r.Tenant, r.User, r.Executor, r.Priority, c.keys)
	c.Flow = flow.ID.String()
	if err := c.Execution.Queue(later(c.now, q.buckets.now), q.store.policy); err != nil {
		return err
	}
	if behind && c.Waiting == execution.WaitingForTurn {
		c.Waiting = execution.WaitingForKey
	}
	if !slices.ContainsFunc(q.flows, func(l admission.Flow) bool { return l.ID == flow.ID }) {
		q.flows = append(q.flows, flow)
	}
	q.change.touch(c.Execution)
	return nil
}

// flowsLock is the advisory lock that keeps flows from being removed while somebody
// queues into them.
const flowsLock = 0x6d696c6c666c6f77

// save writes flows, buckets and executions.
func (q *queueing) save(ctx context.Context, tx pgx.Tx) error {
	return inBatch(ctx, tx, func(b statements) error {
		if err := q.buckets.save(ctx, b); err != nil {
			return fmt.Errorf("save buckets: %w", err)
		}
		if err := saveFlows(ctx, b, q.flows); err != nil {
			return fmt.Errorf("save flows: %w", err)
		}
		return q.change.write(ctx, b)
	})
}

// saveFlows makes sure that flows are there.
func saveFlows(ctx context.Context, tx statements, flows []admission.Flow) error {
	if len(flows) == 0 {
		return nil
	}
	// In one order, since two that make the same flows wait for each other.
	slices.SortFunc(flows, func(a, b admission.Flow) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	var ids, classes, tenants, users, executors, keys []string
	var priorities []int
	for _, l := range flows {
		text := "[]"
		if len(l.Keys) > 0 {
			encoded, err := jsonText(&l.Keys)
			if err != nil {
				return err
			}
			text = *encoded
		}
		ids, classes, tenants = append(ids, l.ID.String()), append(classes, l.Class), append(tenants, l.Tenant)
		users, executors, keys = append(users, l.User), append(executors, l.Executor), append(keys, text)
		priorities = append(priorities, l.Priority)
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock_shared($1)`, int64(flowsLock)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO admission_flows (id, resource_class, tenant, user_name, executor, priority, keys)
		SELECT n.id, n.class, n.tenant, n.user_name, n.executor, n.priority, n.keys::jsonb
		FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[])
			AS n(id, class, tenant, user_name, executor, priority, keys)
		ON CONFLICT DO NOTHING`, ids, classes, tenants, users, executors, priorities, keys)
	return err
}
