package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	handler "github.com/millrace/millrace/handlers/trigger"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

func TestMain(m *testing.M) { testenv.Run(m) }

const patience = time.Minute

const wakeName = "triggers"

// shelf holds definitions, as a store does.
type shelf struct {
	signals *postgres.Signals
	mu      sync.Mutex
	version int64
	list    map[string]trigger.Stored
	broken  error
	asked   int
}

func newShelf() *shelf {
	return &shelf{signals: postgres.NewSignals(nil, nil), list: map[string]trigger.Stored{}}
}

// apply stores definitions, each with another revision.
func (s *shelf) apply(list ...trigger.Definition) {
	s.mu.Lock()
	for _, d := range list {
		old := s.list[d.ID]
		s.list[d.ID] = trigger.Stored{Definition: d, UID: "uid-" + d.ID, Revision: old.Revision + 1}
	}
	s.version++
	s.mu.Unlock()
	s.signals.Wake(wakeName)
}

func (s *shelf) delete(id string) {
	s.mu.Lock()
	delete(s.list, id)
	s.version++
	s.mu.Unlock()
	s.signals.Wake(wakeName)
}

func (s *shelf) breakdown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

func (s *shelf) get(id string) trigger.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[id]
}

// All implements handler.Definitions.
func (s *shelf) All(context.Context) ([]trigger.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []trigger.Stored
	for _, stored := range s.list {
		all = append(all, stored)
	}
	return all, s.broken
}

// Version implements handler.Definitions.
func (s *shelf) Version(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.version, s.broken
}

// questions returns how often it was asked.
func (s *shelf) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func plain(id string) trigger.Definition {
	return trigger.Definition{ID: id, Type: trigger.TypeKafka, Members: 1}
}

func switchedOff(d trigger.Definition) trigger.Definition {
	off := false
	d.Enabled = &off
	return d
}

// stage is a source that notes who runs what.
type stage struct {
	mu   sync.Mutex
	acts map[string]func(ctx context.Context, t *trigger.Compiled, report func(trigger.MemberReport)) error
	// running counts the members by trigger and revision, at most what there ever were at once.
	running map[string]int
	begun   map[string]int
	revs    map[string]int64
	clash   []string
}

func newStage() *stage {
	return &stage{
		acts:    map[string]func(context.Context, *trigger.Compiled, func(trigger.MemberReport)) error{},
		running: map[string]int{}, begun: map[string]int{}, revs: map[string]int64{},
	}
}

// Run implements handler.Source.
func (s *stage) Run(ctx context.Context, t *trigger.Compiled, _ int, report func(trigger.MemberReport)) error {
	s.mu.Lock()
	s.running[t.ID]++
	s.begun[t.ID]++
	s.revs[t.ID] = t.Revision
	if s.running[t.ID] > t.Members {
		s.clash = append(s.clash, t.ID)
	}
	act := s.acts[t.ID]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[t.ID]--
	}()
	if act != nil {
		return act(ctx, t, report)
	}
	report(trigger.MemberReport{State: trigger.StateRunning})
	<-ctx.Done()
	return nil
}

func (s *stage) count(of map[string]int, id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of[id]
}

// total returns how many members run.
func (s *stage) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, running := range s.running {
		n += running
	}
	return n
}

func (s *stage) revision(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[id] == 0 {
		return 0
	}
	return s.revs[id]
}

// theatre is an installation.
type theatre struct {
	t      *testing.T
	dsn    string
	pool   *pgxpool.Pool
	reader *report.Reader
	shelf  *shelf
	stage  *stage
	source handler.Source
	reg    *prometheus.Registry
}

func newTheatre(t *testing.T) *theatre {
	t.Helper()
	h := &theatre{t: t, dsn: testenv.Database(t, postgres.MigrateDSN), shelf: newShelf(), stage: newStage()}
	h.pool, h.source = h.open(), h.stage
	h.reader = report.NewReader(h.pool)
	return h
}

func (h *theatre) open() *pgxpool.Pool {
	h.t.Helper()
	pool, err := pgxpool.New(context.WithoutCancel(h.t.Context()), h.dsn)
	require.NoError(h.t, err)
	h.t.Cleanup(pool.Close)
	return pool
}

const ttl = 5 * time.Second

// process runs a supervisor until the test ends, or stop.
func (h *theatre) process(name string, pool *pgxpool.Pool) (stop func()) {
	h.t.Helper()
	h.reg = prometheus.NewRegistry()
	s, err := handler.NewSupervisor(handler.Config{
		Definitions: h.shelf,
		Compile: func(s trigger.Stored) (*trigger.Compiled, error) {
			switch {
			case strings.HasPrefix(s.Description, "invalid"):
				return nil, errors.New("executor is missing")
			case s.Description == "panic":
				panic("no such type")
			}
			return &trigger.Compiled{Stored: s}, nil
		},
		Sources: map[trigger.Type]handler.Source{trigger.TypeKafka: h.source},
		Leases:  lease.NewManager(pool, name, ttl, nil, lease.WithSignals(h.shelf.signals)),
		Reports: report.NewWriter(pool, nil),
		Reader:  report.NewReader(pool), DormantPoll: 20 * time.Millisecond,
		Signals:  h.shelf.signals,
		WakeName: wakeName, Poll: time.Hour, BackoffMin: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
		Registerer: h.reg,
	})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(h.t, s.Run(ctx)) })
	stop = func() { cancel(); running.Wait() }
	h.t.Cleanup(stop)
	return stop
}

func (h *theatre) eventually(condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, condition, patience, 10*time.Millisecond)
	h.stage.mu.Lock()
	defer h.stage.mu.Unlock()
	assert.Empty(h.t, h.stage.clash, "more members at once than there are to be")
}

func (h *theatre) status(id string) trigger.Status {
	h.t.Helper()
	list, err := h.reader.Of(context.WithoutCancel(h.t.Context()), h.shelf.get(id))
	if !assert.NoError(h.t, err) {
		return trigger.Status{Members: make([]trigger.MemberStatus, 1)}
	}
	return list[0]
}

func (h *theatre) until(id string, state trigger.State) (s trigger.Status) {
	h.t.Helper()
	h.eventually(func() bool { s = h.status(id); return s.State == state })
	return s
}

// A process that is asked to stop begins nothing once more on its way out.
func TestAStopBeginsNothingAnew(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	stop := h.process("a", h.pool)
	const many = 20
	for n := range many {
		h.shelf.apply(plain(fmt.Sprint("t", n)))
	}
	h.eventually(func() bool { return h.stage.total() == many })
	stop()
	for n := range many {
		assert.Equal(t, 1, h.stage.count(h.stage.begun, fmt.Sprint("t", n)), n)
	}
}

func TestTriggersFollowTheirDefinitions(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.process("a", h.pool)
	h.shelf.apply(plain("orders"), plain("stock"), switchedOff(plain("off")), trigger.Definition{ID: "hook", Type: trigger.TypeWebhook})
	h.until("orders", trigger.StateRunning)
	h.until("stock", trigger.StateRunning)
	assert.Equal(t, 2, h.stage.total())
	assert.Equal(t, trigger.StateDisabled, h.status("off").State)

	// A change begins anew, and disturbs no other.
	h.shelf.apply(plain("orders"))
	h.eventually(func() bool { return h.stage.revision("orders") == 2 })
	s := h.until("orders", trigger.StateRunning)
	h.eventually(func() bool { return h.status("orders").Members[0].Revision == 2 })
	assert.NotEmpty(t, s.Members[0].Owner)
	assert.Equal(t, 1, h.stage.count(h.stage.begun, "stock"))

	// Off, and on and off and on again at once: the last word counts.
	h.shelf.apply(switchedOff(plain("orders")))
	h.eventually(func() bool { return h.stage.count(h.stage.running, "orders") == 0 })
	assert.Equal(t, trigger.StateDisabled, h.status("orders").State)
	for range 20 {
		h.shelf.apply(plain("orders"))
		h.shelf.apply(switchedOff(plain("orders")))
	}
	h.shelf.apply(plain("orders"))
	h.eventually(func() bool { return h.stage.revision("orders") == 44 })
	h.until("orders", trigger.StateRunning)

	h.shelf.delete("stock")
	h.eventually(func() bool { return h.stage.count(h.stage.running, "stock") == 0 })
	h.eventually(func() bool {
		var rows int
		err := h.pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*) FROM trigger_members WHERE trigger = 'stock'`).Scan(&rows)
		return err == nil && rows == 0
	})
}

// What goes wrong in one leaves the others alone, is seen, and is tried again.
func TestAFaultIsThatOfOneTrigger(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	healed := make(chan struct{})
	h.stage.acts["panics"] = func(ctx context.Context, _ *trigger.Compiled, report func(trigger.MemberReport)) error {
		select {
		case <-healed:
			report(trigger.MemberReport{State: trigger.StateRunning})
			<-ctx.Done()
			return nil
		default:
			panic("nil map")
		}
	}
	h.stage.acts["fails"] = func(_ context.Context, _ *trigger.Compiled, report func(trigger.MemberReport)) error {
		report(trigger.MemberReport{State: trigger.StateStarting, Notes: []trigger.Cause{{Code: "n"}}})
		return &handler.FailedError{Cause: trigger.Cause{Code: "authentication_failed", Message: "the broker refused the password", Hint: "check it"}}
	}
	h.stage.acts["ends"] = func(context.Context, *trigger.Compiled, func(trigger.MemberReport)) error { return nil }
	floods := make(chan struct{})
	h.stage.acts["floods"] = func(ctx context.Context, _ *trigger.Compiled, report func(trigger.MemberReport)) error {
		close(floods)
		for n := int64(0); ctx.Err() == nil; n++ {
			report(trigger.MemberReport{State: trigger.StateRunning, Partitions: []trigger.PartitionReport{{Topic: "t", State: trigger.StateRunning, Offset: n, End: n}}})
		}
		return nil
	}
	invalid, panics := plain("invalid"), plain("new")
	invalid.Description, panics.Description = "invalid", "panic"
	h.process("a", h.pool)
	h.shelf.apply(plain("panics"), plain("fails"), plain("ends"), plain("floods"), invalid, panics, plain("good"))
	<-floods
	h.until("good", trigger.StateRunning)
	h.until("floods", trigger.StateRunning)
	assert.Equal(t, 1, h.stage.count(h.stage.begun, "good"))

	s := h.until("panics", trigger.StateError)
	assert.Equal(t, "panic", s.Cause.Code)
	assert.Equal(t, "panic: nil map", s.Cause.Message)
	h.eventually(func() bool { return h.status("panics").Members[0].Attempts > 3 })
	assert.False(t, h.status("panics").NextTry.IsZero())
	s = h.until("fails", trigger.StateError)
	assert.Equal(t, &trigger.Cause{Code: "authentication_failed", Message: "the broker refused the password", Hint: "check it"}, s.Cause)
	since := s.Since
	assert.Equal(t, "source_failed", h.until("ends", trigger.StateError).Cause.Code)
	assert.Equal(t, "invalid_definition", h.until("invalid", trigger.StateError).Cause.Code)
	assert.Equal(t, "invalid_definition", h.until("new", trigger.StateError).Cause.Code)
	assert.Zero(t, h.stage.count(h.stage.begun, "invalid"))
	assert.GreaterOrEqual(t, testutil.CollectAndCount(h.reg, "millrace_trigger_restarts_total"), 3)

	// Causes pass.
	close(healed)
	h.shelf.apply(plain("invalid"))
	h.until("invalid", trigger.StateRunning)
	s = h.until("panics", trigger.StateRunning)
	assert.Nil(t, s.Cause)
	attempts := h.status("fails").Members[0].Attempts
	h.eventually(func() bool { return h.status("fails").Members[0].Attempts > attempts })
	assert.Equal(t, since, h.status("fails").Since, "it has not run in between")
}

// Members are shared among processes, taken over when one leaves or dies, and never run
// twice.
func TestProcessesShareTriggers(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	doomed := h.open()
	stop := h.process("a", h.pool)
	many := plain("many")
	many.Members = 3
	list := []trigger.Definition{many}
	for n := range 9 {
		list = append(list, plain(fmt.Sprintf("t%d", n)))
	}
	h.shelf.apply(list...)
	h.eventually(func() bool { return h.stage.total() == 10 }) // one of three, and nine
	h.process("b", h.pool)
	h.eventually(func() bool { return h.stage.total() == 11 && h.stage.count(h.stage.running, "many") == 2 })
	h.process("c", doomed)
	h.eventually(func() bool { return h.stage.total() == 12 && h.stage.count(h.stage.running, "many") == 3 })
	h.eventually(func() bool {
		owners := map[string]int{}
		for _, d := range list {
			for _, m := range h.status(d.ID).Members {
				owners[m.Owner]++
			}
		}
		for _, n := range owners {
			if n != 4 {
				return false
			}
		}
		return len(owners) == 3
	})

	doomed.Close() // it can say nothing any more
	h.eventually(func() bool { return h.stage.total() == 11 && len(h.status("many").Members) == 2 })
	for _, d := range list {
		h.until(d.ID, trigger.StateRunning)
	}
	stop()
	h.eventually(func() bool { return h.stage.total() == 10 })
}

// Without its definitions a trigger goes on as it was.
func TestWhileTheDefinitionsCannotBeRead(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.process("a", h.pool)
	h.shelf.apply(plain("orders"))
	h.until("orders", trigger.StateRunning)
	h.shelf.breakdown(errors.New("connection refused"))
	asked := h.shelf.questions()
	h.shelf.apply(switchedOff(plain("orders")))
	h.eventually(func() bool { return h.shelf.questions() > asked })
	assert.Equal(t, 1, h.stage.count(h.stage.running, "orders"))
	h.shelf.breakdown(nil)
	h.shelf.signals.Wake(wakeName)
	h.eventually(func() bool { return h.stage.total() == 0 })
}

func TestTheDatabaseGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	var away atomic.Bool
	config, err := pgxpool.ParseConfig(h.dsn)
	require.NoError(t, err)
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return !away.Load(), nil }
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	h.process("a", pool)
	h.shelf.apply(plain("orders"), plain("stock"))
	h.until("orders", trigger.StateRunning)
	h.until("stock", trigger.StateRunning)
	away.Store(true)
	// It stops before anybody else might begin.
	h.eventually(func() bool { return h.stage.total() == 0 })
	away.Store(false)
	h.eventually(func() bool { return h.stage.total() == 2 })
	h.until("orders", trigger.StateRunning)
	h.until("stock", trigger.StateRunning)
}

// A source that does not stop keeps its lease: nobody else begins meanwhile.
func TestASlowStopKeepsTheLease(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	told, release := make(chan struct{}, 1), make(chan struct{})
	h.stage.acts["slow"] = func(ctx context.Context, _ *trigger.Compiled, report func(trigger.MemberReport)) error {
		report(trigger.MemberReport{State: trigger.StateRunning})
		<-ctx.Done()
		select {
		case told <- struct{}{}:
		default: // the test is over
		}
		<-release
		return nil
	}
	h.process("a", h.pool)
	h.shelf.apply(plain("slow"))
	h.until("slow", trigger.StateRunning)
	h.shelf.apply(plain("slow"))
	<-told
	h.process("b", h.pool)
	h.shelf.apply(plain("other"))
	h.until("other", trigger.StateRunning)
	assert.Equal(t, 1, h.stage.count(h.stage.begun, "slow"))
	close(release)
	h.eventually(func() bool { return h.stage.revision("slow") == 2 })
}

func TestAThousandTriggers(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	var list []trigger.Definition
	for n := range 1000 {
		list = append(list, plain(fmt.Sprintf("t%03d", n)))
	}
	h.shelf.apply(list...)
	h.process("a", h.pool)
	h.eventually(func() bool { return h.stage.total() == 1000 })
	all, err := h.shelf.All(t.Context())
	require.NoError(t, err)
	h.eventually(func() bool {
		statuses, err := h.reader.Of(context.WithoutCancel(t.Context()), all...)
		if err != nil {
			return false
		}
		for _, s := range statuses {
			if s.State != trigger.StateRunning {
				return false
			}
		}
		return true
	})
	h.shelf.apply(switchedOff(plain("t500")))
	h.eventually(func() bool { return h.stage.total() == 999 })
	assert.Equal(t, 1, h.stage.count(h.stage.begun, "t499"))
	for n := range list {
		list[n] = switchedOff(list[n])
	}
	h.shelf.apply(list...)
	h.eventually(func() bool { return h.stage.total() == 0 })
}
