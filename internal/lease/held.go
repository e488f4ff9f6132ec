package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier runs a query: a transaction, a connection, a pool.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Held is a lease that this process holds, or held. It is safe for concurrent
// use.
type Held struct {
	manager *Manager
	name    string
	token   int64
	ctx     context.Context
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	trusted time.Time // with a monotonic reading
	expiry  *time.Timer
}

func newHeld(ctx context.Context, m *Manager, name string, token int64, trusted time.Time) *Held {
	h := &Held{manager: m, name: name, token: token, trusted: trusted}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.mu.Lock() // the timer may fire before it is assigned
	h.expiry = time.AfterFunc(time.Until(trusted), h.expire)
	h.mu.Unlock()
	context.AfterFunc(h.ctx, h.forget)
	return h
}

// Name returns the name of the lease.
func (h *Held) Name() string { return h.name }

// Token returns the fencing token. It is higher than that of every earlier holder.
func (h *Held) Token() int64 { return h.token }

// Context ends when the lease must not be relied on any more. context.Cause is
// ErrLost, ErrReleased, or what ended the context given to Acquire.
func (h *Held) Context() context.Context { return h.ctx }

// Remaining returns for how long the lease may be relied on without another
// renewal; it is negative or zero when it may not. Ask before an effect that
// cannot be fenced, and again after a pause: a process that was stopped finds its
// lease gone here before its timers have run.
func (h *Held) Remaining() time.Duration {
	if h.ctx.Err() != nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.trusted)
}

// CheckSQL selects a row when the lease named $1 is held under the token $2, and
// keeps it from being taken over until the transaction ends. See Check.
const CheckSQL = `SELECT 1 FROM leases WHERE name = $1 AND token = $2 AND expires_at > clock_timestamp() FOR KEY SHARE`

// Check verifies inside the caller's transaction that the lease is still held,
// and keeps it from being taken over until the transaction ends. It returns
// ErrLost when it is not. What the transaction does should take less than the
// TTL, since a takeover has to wait for it.
func (h *Held) Check(ctx context.Context, tx Querier) error {
	var one int
	err := tx.QueryRow(ctx, CheckSQL, h.name, h.token).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("lease %s, token %d: %w", h.name, h.token, ErrLost)
	}
	if err != nil {
		return fmt.Errorf("check lease %s: %w", h.name, err)
	}
	return nil
}

// CheckAlone is Check for transactions that must see what the one before them under
// this lease has done: it waits until no other one that was checked so is open. A
// holder that heard nothing of its commit may go on, and the server may still have the
// old transaction: what it is about to commit shows to nobody, and a decision that
// builds on what is visible would not know of it.
func (h *Held) CheckAlone(ctx context.Context, tx Querier) error {
	var none any
	err := tx.QueryRow(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('lease:' || $1, 0))`, h.name).Scan(&none)
	if err != nil {
		return fmt.Errorf("wait for transactions under lease %s: %w", h.name, err)
	}
	return h.Check(ctx, tx)
}

// Release gives the lease back, so that somebody else can take it at once. The
// context of the lease ends first, whatever becomes of the statement: after an
// error the lease runs out by itself. Releasing a lease that was lost does nothing.
func (h *Held) Release(ctx context.Context) error {
	if !h.end(ErrReleased) {
		return nil
	}
	_, err := h.manager.pool.Exec(ctx, `
		UPDATE leases SET expires_at = clock_timestamp()
		WHERE name = $1 AND token = $2 AND expires_at > clock_timestamp()`, h.name, h.token)
	if err != nil {
		return fmt.Errorf("release lease %s: %w", h.name, err)
	}
	h.manager.wake(h.name)
	return nil
}

// end ends the lease locally. It reports whether it was still held.
func (h *Held) end(cause error) bool {
	// A cancelled parent has ended the context without anybody knowing of it at the
	// server, so that Release must still go there.
	alive := h.ctx.Err() == nil || !errors.Is(context.Cause(h.ctx), ErrLost) && !errors.Is(context.Cause(h.ctx), ErrReleased)
	h.cancel(cause)
	h.forget()
	return alive
}

func (h *Held) forget() {
	h.mu.Lock()
	h.expiry.Stop()
	h.mu.Unlock()
	h.manager.remove(h)
}

// confirm notes a renewal whose statement was about to be sent at that moment.
func (h *Held) confirm(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := sent.Add(h.manager.ttl - h.manager.margin)
	if h.ctx.Err() != nil || !until.After(h.trusted) {
		return
	}
	h.trusted = until
	h.expiry.Reset(time.Until(until))
}

// expire runs when the lease was not confirmed in time. The timer may have fired
// just before a confirmation moved it.
func (h *Held) expire() {
	h.mu.Lock()
	left := time.Until(h.trusted)
	if left > 0 {
		h.expiry.Reset(left)
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	h.lose("not renewed in time")
}

func (h *Held) lose(reason string) {
	if h.ctx.Err() != nil {
		return
	}
	h.manager.log.WarnContext(h.ctx, "lease lost", "lease", h.name, "token", h.token, "reason", reason)
	h.end(ErrLost)
}

// Holder is who holds a lease, as the table has it.
type Holder struct {
	// Owner holds it, or held it last; empty when nobody ever did.
	Owner string
	// Until is when it expires, or did.
	Until time.Time
	// Live is true until then, by the database's clock.
	Live bool
}

// HolderOf returns who holds a lease, for whoever wants to know and not to take it.
func HolderOf(ctx context.Context, db Querier, name string) (Holder, error) {
	var h Holder
	err := db.QueryRow(ctx, `SELECT owner, expires_at, expires_at > clock_timestamp() FROM leases WHERE name = $1`, name).
		Scan(&h.Owner, &h.Until, &h.Live)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Holder{}, fmt.Errorf("read lease %s: %w", name, err)
	}
	h.Until = h.Until.UTC()
	return h, nil
}
