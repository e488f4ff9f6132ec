package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/trigger"
)

// claim is the part of a transaction that decides what becomes of messages.
//
// # Locks
//
// They are taken in one order by all: the limit of the trigger, if it has one that holds
// here; the keys of the messages, sorted; concurrency keys (store.SubmitGuarded); the
// outbox's, of letters; letters. Nothing that others lock is waited for in between.
type claim struct {
	g     *Ingest
	t     *trigger.Compiled
	items []*item
	// target is what the inbox is told of an item that is made.
	target func(*item) string
	// requests are those of the items that may become executions, whose indexes are at.
	requests []store.Identified
	at       []int

	// What follows belongs to one attempt at the transaction.
	claims []inbox.Claim
	facts  facts
	open   openTargets

	fates   []fate
	blocked *BlockedError
}

func (g *Ingest) claimFor(t *trigger.Compiled, items []*item) *claim {
	c := &claim{g: g, t: t, items: items}
	if t.Kind() == trigger.KindInstance {
		c.target = func(it *item) string { return targetPromise + it.id.String() }
		return c
	}
	c.target = func(it *item) string { return targetExecution + it.id.String() }
	for i, it := range items {
		if it.refusal == nil {
			c.at = append(c.at, i)
			c.requests = append(c.requests, store.Identified{ID: it.id.String(), Request: it.request})
		}
	}
	return c
}

// Ask implements store.Guard.
func (c *claim) Ask(b *pgx.Batch) {
	c.facts = facts{fresh: map[inbox.Key]bool{}, known: map[inbox.Key]string{}, room: -1}
	c.open = openTargets{t: c.t}
	if limited(c.t) {
		c.open.ask(b)
	}
	c.claims = claimsOf(c.items, c.target)
	inbox.Remember(b, c.t.Consumer(), c.claims, func(k inbox.Key) { c.facts.fresh[k] = true })
}

// Decide implements store.Guard.
func (c *claim) Decide(ctx context.Context, tx store.Sender, b *pgx.Batch) ([]int, error) {
	if err := c.recall(ctx, tx); err != nil {
		return nil, err
	}
	if limited(c.t) {
		room, err := c.open.room(ctx, tx, len(c.items))
		if err != nil {
			return nil, err
		}
		c.facts.room = room
	}
	c.fates, c.blocked = decide(c.t, c.items, c.facts)
	right := correct(c.items, c.fates, c.facts, c.claims, c.target)
	inbox.Correct(b, c.t.Consumer(), right.retarget)
	inbox.Forget(b, c.t.Consumer(), right.forget)
	var made []*item
	for i, ft := range c.fates {
		if ft.made {
			made = append(made, c.items[i])
		}
	}
	if limited(c.t) {
		c.open.add(b, made)
	}
	if c.t.Kind() == trigger.KindInstance {
		return nil, nil // letters and the rest come once the instances are started
	}
	if err := settle(ctx, b, c.t, c.items, c.fates); err != nil {
		return nil, err
	}
	return c.kept(), nil
}

// recall asks what was made under keys that were there before.
func (c *claim) recall(ctx context.Context, tx store.Sender) error {
	var keys []inbox.Key
	asked := map[inbox.Key]bool{}
	for _, claim := range c.claims {
		if !c.facts.fresh[claim.Key] && !asked[claim.Key] {
			asked[claim.Key] = true
			keys = append(keys, claim.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	var b pgx.Batch
	inbox.Recall(&b, c.t.Consumer(), keys, func(k inbox.Key, target string) { c.facts.known[k] = target })
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	if c.t.Kind() == trigger.KindInstance {
		return nil
	}
	return c.keptPromises(ctx, tx)
}

// keptPromises finds out which instances were started that a former target of the trigger
// has left as promises: their messages have become something.
func (c *claim) keptPromises(ctx context.Context, tx store.Sender) error {
	promised := map[uuid.UUID][]inbox.Key{}
	ids := []uuid.UUID{}
	for k, target := range c.facts.known {
		if id, ok := promise(target); ok {
			promised[id], ids = append(promised[id], k), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var b pgx.Batch
	engine.QueueExisting(&b, ids, func(id uuid.UUID, _ bool) {
		for _, k := range promised[id] {
			c.facts.known[k] = targetInstance + id.String()
		}
	})
	return tx.Send(ctx, &b)
}

// kept are the indexes of the requests that become executions.
func (c *claim) kept() []int {
	var kept []int
	for n, i := range c.at {
		if i < len(c.fates) && c.fates[i].made {
			c.requests[n].ID = c.items[i].id.String() // which a promise may have changed
			kept = append(kept, n)
		}
	}
	return kept
}

// settle queues the letters of messages that were refused, and what is to be done about
// the letters whose redrives these messages are.
func settle(ctx context.Context, b *pgx.Batch, t *trigger.Compiled, items []*item, fates []fate) error {
	var filed []letter
	var done, failed []string
	for i, ft := range fates {
		it := items[i]
		if it.Letter != "" {
			if err := deadletter.QueueTake(b, it.Letter); err != nil {
				return err
			}
		}
		switch {
		case ft.letter:
			refusal := it.refusal
			if r, ok := ft.Err.(*Refusal); ok { //nolint:errorlint // it is ours, as it is
				refusal = r
			}
			filed = append(filed, letterOf(t, it, refusal, time.Now().UTC()))
			failed = append(failed, it.Letter)
		case it.Letter != "":
			done = append(done, it.Letter)
		}
	}
	deadletter.QueueResolve(b, t.DeadLetterConsumer(), done...)
	if len(filed) == 0 {
		return nil
	}
	// Which takes their locks, and they come before those of the letters' rows.
	if err := outbox.LockAndAppend(ctx, writes{b}, deadletter.Entries(deadLetterTopic, filed...)...); err != nil {
		return fmt.Errorf("publish dead letters: %w", err)
	}
	if err := deadletter.QueueFile(b, filed...); err != nil {
		return err
	}
	for _, id := range failed {
		deadletter.QueueReopen(b, id)
	}
	crash.At("ingest.letters")
	return nil
}

// writes is a batch as the outbox wants it.
type writes struct{ *pgx.Batch }

// Exec queues a statement.
func (w writes) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	w.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}
