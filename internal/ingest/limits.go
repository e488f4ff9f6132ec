package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/trigger"
)

// limited says whether the trigger's limit holds here. With LimitQueue everything is made,
// and it is the coordinator that has it wait.
func limited(t *trigger.Compiled) bool {
	return t.Limits.Open > 0 && (t.LimitAction == trigger.LimitReject || t.LimitAction == trigger.LimitStall)
}

// promiseGrace is for how long an instance that is not there counts as one that is about
// to be started.
const promiseGrace = time.Minute

// openTargets are what a trigger with a limit has made and has not been seen to have
// ended (table trigger_targets). Who makes something has the trigger's lock to the end of
// the transaction, so the limit holds over all members. Nothing behind the creation knows
// of it: that targets have ended is found out when there is no room.
type openTargets struct {
	t     *trigger.Compiled
	count int
}

// ask queues the lock and the count.
func (o *openTargets) ask(b *pgx.Batch) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('millrace trigger ' || $1, 0))`, o.t.UID)
	b.Queue(`SELECT count(*) FROM trigger_targets WHERE trigger_uid = $1`, o.t.UID).QueryRow(func(row pgx.Row) error { return row.Scan(&o.count) })
}

// room returns how many targets may be made, of up to wanted: what has ended makes room
// for them.
func (o *openTargets) room(ctx context.Context, tx store.Sender, wanted int) (int, error) {
	if o.count+wanted > o.t.Limits.Open && o.count > 0 {
		if err := o.sweep(ctx, tx); err != nil {
			return 0, fmt.Errorf("count the unfinished targets of trigger %s: %w", o.t.ID, err)
		}
	}
	return max(o.t.Limits.Open-o.count, 0), nil
}

// sweep forgets what has ended, or is gone.
func (o *openTargets) sweep(ctx context.Context, tx store.Sender) error {
	type row struct {
		id    uuid.UUID
		kind  string
		young bool
	}
	var rows []row
	var b pgx.Batch
	b.Queue(`SELECT target, kind, made_at > clock_timestamp() - $2::interval FROM trigger_targets WHERE trigger_uid = $1`, o.t.UID, promiseGrace).
		Query(func(found pgx.Rows) error {
			var r row
			_, err := pgx.ForEachRow(found, []any{&r.id, &r.kind, &r.young}, func() error {
				rows = append(rows, r)
				return nil
			})
			return err
		})
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	byKind := map[string][]uuid.UUID{}
	for _, r := range rows {
		byKind[r.kind] = append(byKind[r.kind], r.id)
	}
	open, there := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	note := func(id uuid.UUID, ended bool) { open[id], there[id] = !ended, true }
	b = pgx.Batch{}
	store.QueueExisting(&b, byKind[trigger.KindExecution], note)
	engine.QueueExisting(&b, byKind[trigger.KindInstance], note)
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	var gone []uuid.UUID
	for _, r := range rows {
		if promised := r.kind == trigger.KindInstance && r.young && !there[r.id]; !open[r.id] && !promised {
			gone = append(gone, r.id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	o.count -= len(gone)
	b = pgx.Batch{}
	b.Queue(`DELETE FROM trigger_targets WHERE trigger_uid = $1 AND target = ANY($2)`, o.t.UID, gone)
	return tx.Send(ctx, &b)
}

// add queues the rows of what is made. A promise that is kept may have one.
func (o *openTargets) add(b *pgx.Batch, made []*item) {
	if len(made) == 0 {
		return
	}
	ids := make([]uuid.UUID, len(made))
	for i, it := range made {
		ids[i] = it.id
	}
	b.Queue(`INSERT INTO trigger_targets (trigger_uid, target, kind) SELECT $1, id, $3 FROM unnest($2::uuid[]) AS id
		ON CONFLICT (trigger_uid, target) DO UPDATE SET made_at = excluded.made_at`, o.t.UID, ids, o.t.Kind())
}

// remove queues the removal of the rows of what was not made after all.
func (o *openTargets) remove(b *pgx.Batch, ids []uuid.UUID) {
	if len(ids) > 0 {
		b.Queue(`DELETE FROM trigger_targets WHERE trigger_uid = $1 AND target = ANY($2)`, o.t.UID, ids)
	}
}

// Forget removes what the limit of a trigger is counted by. It is part of the transaction
// that deletes the trigger. What the inbox knows of the trigger goes with its generations.
func Forget(ctx context.Context, tx pgx.Tx, uid string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM trigger_targets WHERE trigger_uid = $1`, uid); err != nil {
		return fmt.Errorf("forget the targets of trigger %s: %w", uid, err)
	}
	return nil
}

// TriggerChanged does Forget for triggers that are deleted: it follows the changes of the
// store of triggers, in their transactions.
func (g *Ingest) TriggerChanged(ctx context.Context, tx pgx.Tx, t trigger.Stored, deleted bool) error {
	if !deleted {
		return nil
	}
	g.gone(t.ID)
	return Forget(ctx, tx, t.UID)
}
