package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// signalChannel is the one channel that all processes listen on; the name of a
	// signal is the payload.
	signalChannel = "millrace"
	// notifyEvery is the shortest time between two notifications of one name. The
	// first goes out at once; what is woken meanwhile goes out together afterwards.
	notifyEvery = 5 * time.Millisecond
	// listenCheck is how long the connection may be silent before it is tested: a
	// connection that a firewall has forgotten looks just like a quiet one.
	listenCheck = 30 * time.Second
	// maxSignalName keeps a payload below the server's 8000 bytes.
	maxSignalName = 1000

	listenBackoffMin = 100 * time.Millisecond
	listenBackoffMax = 5 * time.Second
	listenTimeout    = 5 * time.Second
)

// Signals wakes those who wait for a name, in this process at once and in others
// through PostgreSQL. It is safe for concurrent use and works without Run, inside
// the process only.
//
// It keeps one connection of its own, beside the pool, on which it listens and
// sends. It never sends inside a caller's transaction: NOTIFY takes a lock at
// commit that all notifying transactions of the server queue for.
type Signals struct {
	config *pgx.ConnConfig
	log    *slog.Logger

	mu          sync.Mutex
	subscribers map[string]map[*subscription]struct{}
	listeners   map[*listener]struct{}
	// due holds the names to notify others of; sent, when a name was last sent.
	due  map[string]struct{}
	sent map[string]time.Time
	// kick interrupts the loop that waits for notifications.
	kick chan struct{}
	// running is false while nobody sends, so that due does not grow for nothing.
	running bool
}

type subscription struct{ c chan struct{} }

// A listener hears names of other processes.
type listener struct {
	prefix string
	fn     func(name string)
}

func (s *subscription) wake() {
	select {
	case s.c <- struct{}{}:
	default: // one is waiting already
	}
}

// NewSignals returns signals that use the address and credentials of pool, but
// none of its connections. A nil log discards.
func NewSignals(pool *pgxpool.Pool, log *slog.Logger) *Signals {
	s := &Signals{
		log:         log,
		subscribers: make(map[string]map[*subscription]struct{}),
		listeners:   make(map[*listener]struct{}),
		due:         make(map[string]struct{}),
		sent:        make(map[string]time.Time),
		kick:        make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if pool != nil {
		s.config = pool.Config().ConnConfig
	}
	return s
}

// Subscribe returns a channel that receives when name is woken. Wake-ups that
// come while one is waiting in the channel are merged with it. The channel is
// never closed; stop ends the subscription and may be called more than once.
func (s *Signals) Subscribe(name string) (wakes <-chan struct{}, stop func()) {
	sub := &subscription{c: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers[name] == nil {
		s.subscribers[name] = make(map[*subscription]struct{})
	}
	s.subscribers[name][sub] = struct{}{}
	return sub.c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers[name], sub)
		if len(s.subscribers[name]) == 0 {
			delete(s.subscribers, name)
		}
	}
}

// Listen has fn called with every name that begins with prefix and is woken in another
// process, and with prefix itself whenever such names may have been missed. It is for
// names that are too many to subscribe to one by one. What this process wakes itself is
// not heard. The function must not block; stop may be called more than once.
func (s *Signals) Listen(prefix string, fn func(name string)) (stop func()) {
	l := &listener{prefix: prefix, fn: fn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
	}
}

// tell calls the listeners of a name; of all, each with its prefix, when it is empty.
func (s *Signals) tell(name string) {
	s.mu.Lock()
	var calls []func()
	for l := range s.listeners {
		switch {
		case name == "":
			calls = append(calls, func() { l.fn(l.prefix) })
		case strings.HasPrefix(name, l.prefix):
			calls = append(calls, func() { l.fn(name) })
		}
	}
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// Wake wakes the subscribers of name. It returns at once and never fails: the
// notification of other processes follows within milliseconds, or gets lost, which
// subscribers make up for by polling. Call it after the commit.
func (s *Signals) Wake(name string) {
	s.wakeLocal(name)
	if name == "" || len(name) > maxSignalName {
		return
	}
	s.mu.Lock()
	_, already := s.due[name]
	if s.running && !already {
		s.due[name] = struct{}{}
	}
	running := s.running
	s.mu.Unlock()
	if !running || already {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Signals) wakeLocal(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subscribers[name] {
		sub.wake()
	}
}

func (s *Signals) wakeEverybody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subs := range s.subscribers {
		for sub := range subs {
			sub.wake()
		}
	}
}

// Run carries signals between processes until ctx ends, and returns nil then. It
// reconnects by itself; after each reconnect it wakes every subscriber once, for
// the notifications that were missed. It must not run twice at the same time.
//
// Behind a pooler that gives a connection away between transactions nothing is
// received: everything works, only as slowly as callers poll.
func (s *Signals) Run(ctx context.Context) error {
	if s.config == nil {
		return errors.New("run signals: no pool was given")
	}
	s.setRunning(true)
	defer s.setRunning(false)
	lost := false
	for backoff := listenBackoffMin; ; {
		began := time.Now()
		err := s.session(ctx, lost)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > listenCheck {
			backoff = listenBackoffMin // it worked for a while
		}
		if !lost {
			s.log.WarnContext(ctx, "wake-ups from other processes are lost, polling instead", "error", err)
		}
		lost = true
		if sleep(ctx, backoff) != nil {
			return nil
		}
		backoff = min(backoff*2, listenBackoffMax)
	}
}

func (s *Signals) setRunning(running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = running
	clear(s.due)
	clear(s.sent)
}

// session connects, listens and sends until something breaks.
func (s *Signals) session(ctx context.Context, again bool) error {
	conn, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if again {
		s.log.InfoContext(ctx, "wake-ups from other processes are back")
	}
	// Whatever was notified before the LISTEN took effect went by unheard.
	s.wakeEverybody()
	s.tell("")
	own := conn.PgConn().PID()
	for {
		names, wait := s.takeDue()
		if err := notify(ctx, conn, names); err != nil {
			return err
		}
		n, err := s.wait(ctx, conn, wait)
		if err != nil {
			return err
		}
		if n != nil && n.PID != own { // our own subscribers were woken by Wake
			s.wakeLocal(n.Payload)
			s.tell(n.Payload)
		}
	}
}

func (s *Signals) listen(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", connectCause(err))
	}
	if _, err := conn.Exec(ctx, "LISTEN "+signalChannel); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// wait returns the next notification, or nil when there is something to send or
// the time is up.
func (s *Signals) wait(ctx context.Context, conn *pgx.Conn, atMost time.Duration) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	stop := make(chan struct{})
	interrupter := make(chan struct{})
	go func() {
		defer close(interrupter)
		select {
		case <-s.kick:
			cancel()
		case <-stop:
		}
	}()
	n, err := conn.WaitForNotification(waiting)
	timedOut := errors.Is(waiting.Err(), context.DeadlineExceeded)
	close(stop)
	<-interrupter
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case waiting.Err() == nil || conn.IsClosed():
		return nil, fmt.Errorf("wait for notifications: %w", err)
	case timedOut && atMost == listenCheck:
		return nil, check(ctx, conn)
	default:
		return nil, nil
	}
}

func check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("check the listening connection: %w", err)
	}
	return nil
}

// takeDue returns the names that may be sent now, and how long to wait for
// notifications until the next one may.
func (s *Signals) takeDue() (names []string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = listenCheck
	for name, at := range s.sent {
		if _, again := s.due[name]; !again && now.Sub(at) >= notifyEvery {
			delete(s.sent, name) // so that names of long ago do not pile up
		}
	}
	for name := range s.due {
		if at, ok := s.sent[name]; ok && now.Sub(at) < notifyEvery {
			wait = min(wait, notifyEvery-now.Sub(at))
			continue
		}
		delete(s.due, name)
		s.sent[name] = now
		names = append(names, name)
	}
	return names, wait
}

func notify(ctx context.Context, conn *pgx.Conn, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, `SELECT pg_notify($1, name) FROM unnest($2::text[]) AS t(name)`, signalChannel, names); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
