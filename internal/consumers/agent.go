package consumers

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

const (
	// HeartbeatDefault is how often a process says that it is alive.
	HeartbeatDefault = 10 * time.Second
	// StaleAfter is for how long a report counts without such a sign.
	StaleAfter = 30 * time.Second
	// PollDefault is how often an agent looks for what is wanted of it when nothing
	// wakes it.
	PollDefault = time.Second

	// gather is how long changes are gathered before they are written together.
	gather = 50 * time.Millisecond
	// refreshEvery is how often ends are asked for of partitions that stand.
	refreshEvery = 5 * time.Second
	// callTimeout bounds each call of the database, and of the broker.
	callTimeout = 3 * time.Second
	// forgetAfter is when the traces of a dead process are removed.
	forgetAfter = 24 * time.Hour
)

// The signals of this package; see postgres.Signals.
const (
	// WakeCommands: something is wanted of the agents.
	WakeCommands = "consumer_commands"
	// WakeReports: a report was written.
	WakeReports = "consumer_reports"
	// WakeActions: a command has ended.
	WakeActions = "consumer_actions"
)

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Wake(name string)
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// AgentConfig is what an Agent works with. Pool, Signals and Instance are required.
type AgentConfig struct {
	Pool    *pgxpool.Pool
	Signals Signals
	// Instance names this process, and no other, not even after a restart.
	Instance string
	// Heartbeat and Poll default to the constants of that name.
	Heartbeat, Poll time.Duration
	// Log defaults to one that discards.
	Log *slog.Logger
}

// Agent is what a process does for the status of its consumers, and for the
// commands to them. It is safe for concurrent use.
type Agent struct {
	cfg     AgentConfig
	runtime Runtime
	changed chan struct{}

	mu         sync.Mutex
	transports map[string]Transport // by consumer

	// acting are the commands that are being carried out; see obey.
	acting map[int64]*command
	// taking are partitions whose moved position is being taken up.
	taking map[place]bool

	// The rest belongs to the loop of Run.
	written map[place]Report
	paused  map[string]bool
	failing bool
	dirty   bool // something has changed that is not written
	work    sync.WaitGroup
}

// NewAgent returns an agent without consumers.
func NewAgent(cfg AgentConfig) *Agent {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, HeartbeatDefault)
	cfg.Poll = cmp.Or(cfg.Poll, PollDefault)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{
		cfg: cfg, changed: make(chan struct{}, 1), transports: make(map[string]Transport),
		written: make(map[place]Report), paused: make(map[string]bool), acting: make(map[int64]*command), taking: make(map[place]bool),
	}
}

// Attach says through which subscription a consumer of this process is fed. It must
// be called before Start.
func (a *Agent) Attach(consumer string, t Transport) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.transports[consumer] = t
}

// Changed tells the agent that something about a partition has changed. It does not
// block.
func (a *Agent) Changed() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *Agent) transport(consumer string) Transport {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.transports[consumer]
}

// Local returns the present state of the partitions that this process owns, by
// consumer, topic and partition. It asks nobody.
func (a *Agent) Local() []Report {
	a.mu.Lock()
	runtime := a.runtime
	a.mu.Unlock()
	reports := []Report{}
	if runtime == nil {
		return reports
	}
	for _, c := range runtime.Status() {
		t := a.transport(c.Name)
		if t == nil {
			continue
		}
		for _, assignment := range t.Assignments() {
			reports = append(reports, newReport(c, assignment))
		}
	}
	slices.SortFunc(reports, func(x, y Report) int {
		return cmp.Or(cmp.Compare(x.Consumer, y.Consumer), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return reports
}

const registerConsumer = `
INSERT INTO consumers AS c (name, consumer_group, topic, kind, inbox, replay) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET consumer_group = excluded.consumer_group, topic = excluded.topic, kind = excluded.kind,
    inbox = excluded.inbox, replay = excluded.replay
WHERE (c.consumer_group, c.topic, c.kind, c.inbox, c.replay)
    IS DISTINCT FROM (excluded.consumer_group, excluded.topic, excluded.kind, excluded.inbox, excluded.replay)`

// Start registers the consumers of the runtime and pauses those that are to be
// paused. Call it before they consume, so that none of them gets a record that it
// is not to have.
func (a *Agent) Start(ctx context.Context, runtime Runtime) error {
	a.mu.Lock()
	a.runtime = runtime
	a.mu.Unlock()
	status := runtime.Status()
	// In one order, so that processes that start together do not lock each other out.
	slices.SortFunc(status, func(x, y pipeline.ConsumerStatus) int { return cmp.Compare(x.Name, y.Name) })
	err := postgres.InTx(ctx, a.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, c := range status {
			batch.Queue(registerConsumer, c.Name, c.Group, c.Topic, c.Kind, c.Inbox, c.Replay)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return err
	}
	wanted, err := a.look(ctx)
	if err == nil {
		a.pauseAndResume(wanted)
	}
	return err
}

// Run reports and obeys until ctx ends, and returns nil then. What fails because
// PostgreSQL is away is repeated until it is back.
func (a *Agent) Run(ctx context.Context) error {
	wakes, stop := a.cfg.Signals.Subscribe(WakeCommands)
	defer stop()
	work, cancel := context.WithCancel(ctx)
	defer a.work.Wait()
	defer cancel()
	beat, poll := time.NewTicker(a.cfg.Heartbeat), time.NewTicker(a.cfg.Poll)
	defer beat.Stop()
	defer poll.Stop()
	a.work.Go(func() { a.refreshEnds(work) })

	a.try(ctx, a.beat)
	a.try(ctx, a.flush)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			a.leave(context.WithoutCancel(ctx))
			return nil
		case <-a.changed:
			if due == nil {
				due = time.After(gather)
			}
		case <-due:
			due = nil
			a.try(ctx, a.flush)
			a.press()
		case <-wakes:
			a.try(ctx, func(ctx context.Context) error { return a.obey(ctx, work) })
		case <-poll.C:
			if a.dirty {
				a.try(ctx, a.flush)
			}
			a.try(ctx, func(ctx context.Context) error { return a.obey(ctx, work) })
		case <-beat.C:
			a.try(ctx, a.beat)
			a.try(ctx, a.flush)
		}
	}
}

// try runs one step, and logs when steps begin to fail and when they work again.
func (a *Agent) try(ctx context.Context, step func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := step(limited)
	if ctx.Err() != nil {
		return
	}
	switch failed := err != nil; {
	case failed && !a.failing:
		a.cfg.Log.WarnContext(ctx, "consumers are not reported, it will be repeated", "error", err)
	case !failed && a.failing:
		a.cfg.Log.InfoContext(ctx, "consumers are reported again")
	}
	a.failing = err != nil
}

// beat gives a sign of life. A process that was taken for dead, and forgotten,
// reports everything anew.
func (a *Agent) beat(ctx context.Context) error {
	var rows int
	err := a.cfg.Pool.QueryRow(ctx, `
		INSERT INTO consumer_instances (instance) VALUES ($1) ON CONFLICT (instance) DO UPDATE SET seen_at = clock_timestamp()
		RETURNING (SELECT count(*) FROM consumer_reports WHERE instance = $1)`, a.cfg.Instance).Scan(&rows)
	if err != nil {
		return err
	}
	if rows < len(a.written) {
		clear(a.written) // somebody has removed them: all are written anew
	}
	// Neither writes anything as a rule.
	batch := &pgx.Batch{}
	batch.Queue(`DELETE FROM consumer_instances WHERE seen_at < clock_timestamp() - make_interval(secs => $1)`, forgetAfter.Seconds())
	batch.Queue(lapseSQL)
	return a.cfg.Pool.SendBatch(ctx, batch).Close()
}

// A stall is as old as it was for the former owner, if it is about the same record.
const writeReport = `
INSERT INTO consumer_reports AS r (consumer, topic, partition, instance, epoch, state, paused, cause_class, cause_code, cause_error,
    blocked_offset, blocked_key, stalled_since, tries, next_try_at, notice)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9, ''), $10, $11, $12,
    least($13::timestamptz, (SELECT min(o.stalled_since) FROM consumer_reports o
        WHERE o.consumer = $1 AND o.topic = $2 AND o.partition = $3 AND o.instance <> $4 AND o.blocked_offset = $11 AND $13 IS NOT NULL)),
    $14, $15, nullif($16, ''))
ON CONFLICT (consumer, topic, partition, instance) DO UPDATE SET
    epoch = excluded.epoch, state = excluded.state, paused = excluded.paused, cause_class = excluded.cause_class,
    cause_code = excluded.cause_code, cause_error = excluded.cause_error, blocked_offset = excluded.blocked_offset,
    blocked_key = excluded.blocked_key, tries = excluded.tries, next_try_at = excluded.next_try_at, notice = excluded.notice,
    stalled_since = CASE WHEN excluded.stalled_since IS NULL THEN NULL WHEN r.blocked_offset = excluded.blocked_offset
        THEN least(r.stalled_since, excluded.stalled_since) ELSE excluded.stalled_since END,
    reported_at = clock_timestamp()`

// supersede removes what former owners said of a partition.
const supersede = `
DELETE FROM consumer_reports WHERE consumer = $1 AND topic = $2 AND partition = $3 AND instance <> $4 AND epoch <= $5`

// flush writes what has changed since the last time.
func (a *Agent) flush(ctx context.Context) error {
	a.dirty = true
	now := make(map[place]Report)
	for _, r := range a.Local() {
		now[r.place()] = r
	}
	batch := &pgx.Batch{}
	for p, r := range now {
		if old, ok := a.written[p]; !ok || !old.same(r) {
			batch.Queue(writeReport, reportArgs(r, a.cfg.Instance)...)
			if !ok || old.State != r.State {
				batch.Queue(supersede, p.consumer, p.topic, p.partition, a.cfg.Instance, r.Epoch)
			}
		}
	}
	for p := range a.written {
		if _, ok := now[p]; !ok {
			// The next owner replaces it; of a stall, it takes over since when.
			batch.Queue(`DELETE FROM consumer_reports WHERE consumer = $1 AND topic = $2 AND partition = $3 AND instance = $4 AND state = 'running'`,
				p.consumer, p.topic, p.partition, a.cfg.Instance)
		}
	}
	if batch.Len() == 0 {
		a.dirty = false
		return nil
	}
	// One transaction, or some of it might be there although it is not noted.
	err := postgres.InTx(ctx, a.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
	if err != nil {
		return err
	}
	a.written, a.dirty = now, false
	a.cfg.Signals.Wake(WakeReports)
	return nil
}

func reportArgs(r Report, instance string) []any {
	var class, text *string
	var offset *int64
	var key []byte
	code := ""
	if r.Cause != nil {
		class, text, code = &r.Cause.Class, &r.Cause.Error, r.Cause.Code
	}
	if r.Blocked != nil {
		offset, key = &r.Blocked.Offset, r.Blocked.Key
	}
	return []any{r.Consumer, r.Topic, r.Partition, instance, r.Epoch, string(r.State), r.Paused, class, code, text,
		offset, key, r.Since, r.Tries, r.NextTry, r.Notice}
}

// leave says that this process is gone, so that its partitions are unowned at once
// and not when it is missed. What it said of stalls stays for the next owners.
func (a *Agent) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(`DELETE FROM consumer_reports WHERE instance = $1 AND state = 'running'`, a.cfg.Instance)
	batch.Queue(`UPDATE consumer_instances SET seen_at = clock_timestamp() - make_interval(secs => $2) WHERE instance = $1`, a.cfg.Instance, 2*StaleAfter.Seconds())
	batch.Queue(`DELETE FROM consumer_instances i WHERE instance = $1 AND NOT EXISTS (SELECT FROM consumer_reports r WHERE r.instance = i.instance)`, a.cfg.Instance)
	if err := a.cfg.Pool.SendBatch(ctx, batch).Close(); err != nil {
		a.cfg.Log.DebugContext(ctx, "the reports of this process run out instead of being removed", "error", err)
	}
	a.cfg.Signals.Wake(WakeReports)
}

// refreshEnds keeps the lag growing of partitions that are not fetched.
func (a *Agent) refreshEnds(ctx context.Context) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.mu.Lock()
		transports := slices.Collect(maps.Values(a.transports))
		a.mu.Unlock()
		for _, t := range transports {
			limited, cancel := context.WithTimeout(ctx, callTimeout)
			if err := t.RefreshEnds(limited); err != nil {
				a.cfg.Log.DebugContext(ctx, "the ends of partitions that stand are not known", "error", err)
			}
			cancel()
		}
	}
}
