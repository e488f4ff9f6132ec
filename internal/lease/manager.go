package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/crash"
)

// TTLDefault is how long a lease lasts without renewal.
const TTLDefault = 10 * time.Second

// renewals is how often a lease is renewed within its TTL, and marginParts the
// part of it by which a holder stops trusting it early.
const (
	renewals    = 3
	marginParts = 10
)

// ErrHeld: somebody else holds the lease.
var ErrHeld = errors.New("lease is held by another")

// ErrLost: the lease has expired, or was taken over.
var ErrLost = errors.New("lease lost")

// ErrReleased is the cause with which the context of a lease ends when its holder
// has given it back.
var ErrReleased = errors.New("lease released")

// heldError is ErrHeld with how long the lease still lasts.
type heldError struct {
	name      string
	remaining time.Duration
}

func (e *heldError) Error() string   { return fmt.Sprintf("lease %s: %v", e.name, ErrHeld) }
func (e *heldError) Is(t error) bool { return t == ErrHeld }

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Wake(name string)
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Manager takes and renews leases for one process. All leases that it holds are
// renewed together, in one statement every third of the TTL. It is safe for
// concurrent use.
type Manager struct {
	pool    *pgxpool.Pool
	owner   string
	ttl     time.Duration
	margin  time.Duration
	log     *slog.Logger
	signals Signals

	mu       sync.Mutex
	held     map[string]*Held
	renewing bool
	// changed tells the renewing goroutine that held has changed.
	changed chan struct{}
}

// Option changes a Manager.
type Option func(*Manager)

// WithSignals makes a released lease be taken by the next one at once, rather
// than at its next poll.
func WithSignals(s Signals) Option { return func(m *Manager) { m.signals = s } }

// NewManager returns a manager. The owner is a name for people, such as host and
// role; the manager adds something unique, so that a restarted process is another
// owner. A ttl of 0 means TTLDefault. A nil log discards.
func NewManager(pool *pgxpool.Pool, owner string, ttl time.Duration, log *slog.Logger, options ...Option) *Manager {
	ttl = cmp.Or(ttl, TTLDefault)
	m := &Manager{
		pool:    pool,
		owner:   owner + "/" + uuid.NewString()[:8],
		ttl:     ttl,
		margin:  ttl / marginParts,
		log:     log,
		held:    make(map[string]*Held),
		changed: make(chan struct{}, 1),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	for _, option := range options {
		option(m)
	}
	return m
}

// Owner returns the name that stands in the rows of this manager's leases.
func (m *Manager) Owner() string { return m.owner }

// TTL returns how long a lease lasts without renewal.
func (m *Manager) TTL() time.Duration { return m.ttl }

// The statement looks before it takes, since INSERT ... ON CONFLICT would lock the
// row of a lease that somebody else holds. The condition is evaluated again on the
// row's latest version, under its lock, so that of two who saw the same expired
// lease one gets it.
const acquireSQL = `
	WITH current AS (
		SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 AS remaining FROM leases WHERE name = $1
	), taken AS (
		INSERT INTO leases AS l (name, owner, token, acquired_at, expires_at)
		SELECT $1, $2, 1, clock_timestamp(), clock_timestamp() + make_interval(secs => $3)
		WHERE NOT EXISTS (SELECT FROM current WHERE remaining > 0)
		ON CONFLICT (name) DO UPDATE SET
			owner = excluded.owner, token = l.token + 1,
			acquired_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $3)
		WHERE l.expires_at <= clock_timestamp()
		RETURNING token
	)
	SELECT (SELECT token FROM taken), coalesce((SELECT remaining FROM current), 0)`

// Acquire takes the lease of that name, once. It returns ErrHeld when somebody
// else has it, which includes another holder in this process. The lease is renewed
// until Release, until it is lost, or until ctx ends; then it runs out by itself.
func (m *Manager) Acquire(ctx context.Context, name string) (*Held, error) {
	m.mu.Lock()
	mine := m.held[name]
	m.mu.Unlock()
	if mine != nil {
		return nil, &heldError{name: name, remaining: m.ttl}
	}

	asked := time.Now() // before the statement: see the package documentation
	var token *int64
	var remaining float64
	err := m.pool.QueryRow(ctx, acquireSQL, name, m.owner, m.ttl.Seconds()).Scan(&token, &remaining)
	if err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	if token == nil {
		return nil, &heldError{name: name, remaining: time.Duration(remaining * float64(time.Second))}
	}
	return m.taken(ctx, name, *token, asked), nil
}

// taken notes a lease that was taken by a statement sent at that moment.
func (m *Manager) taken(ctx context.Context, name string, token int64, asked time.Time) *Held {
	crash.At("lease.taken")
	h := newHeld(ctx, m, name, token, asked.Add(m.ttl-m.margin))
	m.add(h)
	return h
}

// acquireAll takes those of several leases that nobody holds, in one round trip. asking
// bounds that, ctx is as for Acquire.
func (m *Manager) acquireAll(asking, ctx context.Context, names []string) ([]*Held, error) {
	names = slices.Sorted(slices.Values(names)) // so that two who take the same do not deadlock
	asked := time.Now()
	batch := &pgx.Batch{}
	tokens := make([]*int64, len(names))
	for i, name := range names {
		batch.Queue(acquireSQL, name, m.owner, m.ttl.Seconds()).QueryRow(func(row pgx.Row) error {
			var remaining float64
			return row.Scan(&tokens[i], &remaining)
		})
	}
	if err := m.pool.SendBatch(asking, batch).Close(); err != nil {
		return nil, fmt.Errorf("acquire %d leases: %w", len(names), err)
	}
	var got []*Held
	for i, token := range tokens {
		if token != nil {
			got = append(got, m.taken(ctx, names[i], *token, asked))
		}
	}
	return got, nil
}

func (m *Manager) add(h *Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.held[h.name]; old != nil {
		// It expired at the server before it did here, and we took it anew.
		defer old.end(ErrLost)
	}
	m.held[h.name] = h
	if !m.renewing {
		m.renewing = true
		go m.renewLoop()
	}
}

// remove forgets h, so that it is not renewed any more.
func (m *Manager) remove(h *Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[h.name] == h {
		delete(m.held, h.name)
	}
	if len(m.held) == 0 {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// wakeName is the signal for leases like name: those of one kind share it.
func wakeName(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return "lease:" + kind
}

func (m *Manager) wake(name string) {
	if m.signals != nil {
		m.signals.Wake(wakeName(name))
	}
}

// subscribe returns a channel that receives when a lease like name was released;
// without signals it never does.
func (m *Manager) subscribe(name string) (<-chan struct{}, func()) {
	if m.signals == nil {
		return nil, func() {}
	}
	return m.signals.Subscribe(wakeName(name))
}
