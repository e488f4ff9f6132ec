package engine

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

// ReplyIn is Reply for several within a transaction of the caller's, with an outcome each
// in their order; replies have to name their instances. The second error is of the
// transaction, which then has to be given up. The function, which is not nil, is to be
// called after the commit.
//
// The instances stay locked until the transaction ends. Call it once in a transaction,
// and before that lock nothing that others lock after instances.
func (e *Engine) ReplyIn(ctx context.Context, tx pgx.Tx, rs []CommandReply) ([]error, func(), error) {
	nothing := func() {}
	batch := make([]*request, len(rs))
	for i := range rs {
		if rs[i].InstanceID == uuid.Nil {
			return nil, nothing, workflow.Refuse(ErrInvalid, "reply to command %s names no instance", rs[i].CommandID)
		}
		batch[i] = reply(rs[i])
	}
	u := newUnit(e)
	u.foreign, u.batch = true, batch
	u.send = func(ctx context.Context, b *writes) error { return tx.SendBatch(ctx, &b.Batch).Close() }
	if err := u.read(ctx, wantedBy(batch)); err != nil {
		return nil, nothing, fmt.Errorf("engine: %w", err)
	}
	errs, err := u.judge(ctx, batch)
	if err != nil {
		return nil, nothing, fmt.Errorf("engine: %w", err)
	}
	var w written
	if u.dirty() {
		var b writes
		err := u.write(ctx, &b, &w)
		if err == nil {
			err = u.send(ctx, &b)
		}
		if err != nil {
			return nil, nothing, fmt.Errorf("engine: %w", err)
		}
	}
	return errs, func() {
		e.committed(u, &w)
		e.followUp(ctx, u)
	}, nil
}
