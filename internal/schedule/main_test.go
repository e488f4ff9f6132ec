package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// patience is how long tests wait for what has to happen.
const patience = 60 * time.Second

// creator makes targets in memory: once for an identity of a trigger.
type creator struct {
	mu    sync.Mutex
	made  map[string]string
	order []string
	calls int
	// before is asked before a target is made. What it returns is returned instead.
	before func(ctx context.Context, t *trigger.Compiled, m ingest.Message) error
}

func (c *creator) Create(ctx context.Context, t *trigger.Compiled, messages []ingest.Message) (outcomes []ingest.Outcome, err error) {
	for i, m := range messages {
		c.mu.Lock()
		before := c.before
		c.calls++
		c.mu.Unlock()
		if before != nil {
			err := before(ctx, t, m)
			if refusal, ok := errors.AsType[*ingest.Refusal](err); ok {
				outcomes = append(outcomes, ingest.Outcome{Status: ingest.Refused, Err: refusal})
				continue
			}
			if blocked, ok := errors.AsType[*ingest.BlockedError](err); ok {
				blocked.Index = i
			}
			if err != nil {
				return outcomes, err
			}
		}
		c.mu.Lock()
		key := t.UID + " " + m.Identity
		o := ingest.Outcome{Status: ingest.Duplicate, Kind: "execution", ID: c.made[key]}
		if o.ID == "" {
			o.Status, o.ID = ingest.Created, uuid.NewString()
			c.made[key] = o.ID
			c.order = append(c.order, t.ID+" "+m.Time.Format(time.RFC3339))
		}
		c.mu.Unlock()
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (c *creator) intercept(before func(ctx context.Context, t *trigger.Compiled, m ingest.Message) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// targets are asked whether they have ended.
type targets struct {
	mu    sync.Mutex
	ended map[string]bool
}

func (x *targets) Ended(_ context.Context, list []Target) (map[Target]bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := map[Target]bool{}
	for _, t := range list {
		found[t] = x.ended[t.ID]
	}
	return found, nil
}

func (x *targets) end(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended[id] = true
}

// registry has the triggers, in memory.
type registry struct {
	mu  sync.Mutex
	all map[string]trigger.Stored
}

func (r *registry) ByUID(_ context.Context, uids []string) (list []trigger.Stored, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if t, ok := r.all[uid]; ok {
			list = append(list, t)
		}
	}
	return list, nil
}

// world is a database with what fires its schedules, driven by hand.
type world struct {
	*Store
	t        testing.TB
	dsn      string
	runner   *Runner
	creator  *creator
	targets  *targets
	registry *registry
	metrics  *prometheus.Registry
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, dsn: testenv.Database(t, postgres.MigrateDSN), creator: &creator{made: map[string]string{}},
		targets: &targets{ended: map[string]bool{}}, registry: &registry{all: map[string]trigger.Stored{}},
	}
	return w.process(change...)
}

// process is another process on the same database.
func (w *world) process(change ...func(*Config)) *world {
	w.t.Helper()
	other := *w
	pool, err := pgxpool.New(w.t.Context(), w.dsn)
	require.NoError(w.t, err)
	w.t.Cleanup(pool.Close)
	other.metrics = prometheus.NewRegistry()
	c := Config{Pool: pool, Registerer: other.metrics}
	for _, f := range change {
		f(&c)
	}
	other.Store = NewStore(c)
	if w.Store != nil {
		other.skew = w.skew
	}
	other.runner = NewRunner(RunnerConfig{
		Store: other.Store, Creator: w.creator, Triggers: w.registry, Targets: w.targets,
		Compile: func(s trigger.Stored) (*trigger.Compiled, error) { return &trigger.Compiled{Stored: s}, nil },
	})
	return &other
}

// silent has nothing go to topics.
func silent(c *Config) { c.Silent = true }

// set puts the clock of the database to a time, from where it goes on.
func (w *world) set(text string) {
	w.t.Helper()
	var now time.Time
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	w.skew = at(text).Sub(now)
}

// apply makes or changes a trigger, and returns its uid.
func (w *world) apply(id string, s trigger.Schedule, change ...func(*trigger.Stored)) string {
	w.t.Helper()
	w.registry.mu.Lock()
	t := trigger.Stored{UID: uuid.NewString()}
	for _, known := range w.registry.all {
		if known.ID == id {
			t = known
		}
	}
	w.registry.mu.Unlock()
	t.ID, t.Type, t.Schedule, t.Enabled = id, trigger.TypeSchedule, &s, nil
	t.Revision++
	for _, f := range change {
		f(&t)
	}
	w.changed(t, false)
	return t.UID
}

func disabled(t *trigger.Stored) { t.Enabled = new(false) }

func (w *world) remove(uid string) {
	w.t.Helper()
	w.registry.mu.Lock()
	t := w.registry.all[uid]
	w.registry.mu.Unlock()
	w.changed(t, true)
}

func (w *world) changed(t trigger.Stored, deleted bool) {
	w.t.Helper()
	require.NoError(w.t, postgres.InTx(w.t.Context(), w.pool, func(ctx context.Context, tx pgx.Tx) error {
		return w.TriggerChanged(ctx, tx, t, deleted)
	}))
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.registry.all[t.UID] = t
	if deleted {
		delete(w.registry.all, t.UID)
	}
}

// sweep fires whatever is due.
func (w *world) sweep() {
	w.t.Helper()
	for {
		n, _, err := w.Sweep(w.t.Context())
		require.NoError(w.t, err)
		if n == 0 {
			return
		}
	}
}

// pull makes the targets of whatever may be taken from the table.
func (w *world) pull() {
	w.t.Helper()
	for {
		taken, err := w.TakeDue(w.t.Context(), 10)
		require.NoError(w.t, err)
		if len(taken) == 0 {
			return
		}
		require.NoError(w.t, w.runner.Make(w.t.Context(), taken))
	}
}

// work does all that there is to do at a time.
func (w *world) work(text string) {
	w.t.Helper()
	w.set(text)
	w.sweep()
	w.pull()
}

// later lets time pass, and does what there is to do then.
func (w *world) later(d time.Duration) {
	w.t.Helper()
	w.skew += d
	w.sweep()
	w.pull()
}

// firings returns the firings of a trigger, the earliest first, as "time status code".
func (w *world) firings(uid string) []string {
	w.t.Helper()
	list, err := w.Firings(w.t.Context(), FiringFilter{UID: uid, Limit: 1000})
	require.NoError(w.t, err)
	slices.Reverse(list)
	words := []string{}
	for _, f := range list {
		text := f.ScheduledAt.Format("15:04") + " " + string(f.Status)
		if f.Cause != nil {
			text += " " + f.Cause.Code
		}
		if f.Count > 0 {
			text += fmt.Sprintf(" %d from %s", f.Count, f.FirstAt.Format("15:04"))
		}
		words = append(words, text)
	}
	return words
}

// last returns the latest firing of a trigger.
func (w *world) last(uid string) Firing {
	w.t.Helper()
	list, err := w.Firings(w.t.Context(), FiringFilter{UID: uid, Limit: 1})
	require.NoError(w.t, err)
	require.Len(w.t, list, 1)
	return list[0]
}

// event is what lies in the outbox.
type event struct {
	kind    string
	topic   topics.Topic
	uid     string
	version int64
	data    json.RawMessage
}

// events returns what the outbox has of a trigger, of all where the uid is empty.
func (w *world) events(uid string) (list []event) {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT event_type, topic, aggregate_id, payload, headers FROM outbox_events
		WHERE $1 = '' OR aggregate_id = $1 ORDER BY seq`, uid)
	require.NoError(w.t, err)
	var e event
	var data, headers []byte
	_, err = pgx.ForEachRow(rows, []any{&e.kind, &e.topic, &e.uid, &data, &headers}, func() error {
		e.data, e.version = data, sequenceOf(w.t, headers)
		list = append(list, e)
		return nil
	})
	require.NoError(w.t, err)
	return list
}

// kinds are the short names of the events of a trigger.
func (w *world) kinds(uid string) []string {
	w.t.Helper()
	kinds := []string{}
	for _, e := range w.events(uid) {
		kinds = append(kinds, e.kind[len("millrace.schedule."):len(e.kind)-len(".v1")])
	}
	return kinds
}

// tasks are the tasks in the outbox.
func (w *world) tasks() (list []topics.ScheduleTask) {
	w.t.Helper()
	for _, e := range w.events("") {
		if e.topic == topics.ScheduleTasks {
			var task topics.ScheduleTask
			require.NoError(w.t, json.Unmarshal(e.data, &task))
			list = append(list, task)
		}
	}
	return list
}

func (w *world) push() {
	w.t.Helper()
	require.NoError(w.t, w.runner.Push(w.t.Context(), w.tasks()))
}

// report returns how a schedule is doing.
func (w *world) report(uid string) trigger.ScheduleReport {
	w.t.Helper()
	reports, err := w.Reports(w.t.Context(), []string{uid})
	require.NoError(w.t, err)
	require.Contains(w.t, reports, uid)
	return reports[uid]
}
