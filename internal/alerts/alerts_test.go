package alerts_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/alerts"
	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

const patience = time.Minute

// receiver is a webhook that a test directs.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int // the next ones; then 204
	posts   chan post
}

type post struct {
	alerts.Document
	header http.Header
	answer int
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	t.Helper()
	r := &receiver{answers: answers, posts: make(chan post, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		assert.NoError(t, err)
		p := post{header: req.Header, answer: http.StatusNoContent}
		assert.NoError(t, json.Unmarshal(body, &p.Document))
		r.mu.Lock()
		if len(r.answers) > 0 {
			p.answer, r.answers = r.answers[0], r.answers[1:]
		}
		r.mu.Unlock()
		if p.answer == http.StatusTemporaryRedirect {
			w.Header().Set("Location", r.URL+"/elsewhere")
		}
		w.WriteHeader(p.answer)
		r.posts <- p
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) next(t *testing.T) post {
	t.Helper()
	select {
	case p := <-r.posts:
		return p
	case <-time.After(patience):
		require.Fail(t, "nothing is posted")
		return post{}
	}
}

// desk is a database, and the processes that watch it.
type desk struct {
	pool    *pgxpool.Pool
	signals *postgres.Signals
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &desk{pool, postgres.NewSignals(pool, nil)}
}

func (d *desk) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := d.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (d *desk) text(t *testing.T, sql string) string {
	t.Helper()
	var text string
	require.NoError(t, d.pool.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

// watch runs a watcher of a process of its own until the test ends.
func (d *desk) watch(t *testing.T, cfg alerts.Config) (stop func()) {
	t.Helper()
	leases := lease.NewManager(d.pool, "test", time.Minute, nil, lease.WithSignals(d.signals))
	cfg.Pool, cfg.Leases, cfg.Signals, cfg.Registerer = d.pool, leases, d.signals, prometheus.NewRegistry()
	cfg.Interval, cfg.BackoffMin, cfg.BackoffMax = 50*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	w, err := alerts.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, w.Run(ctx)) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// stall writes what an agent reports of a partition.
func (d *desk) stall(t *testing.T, partition int, state string, age time.Duration) {
	t.Helper()
	d.exec(t, `INSERT INTO consumers (name, consumer_group, topic, kind, inbox) VALUES ('audit', 'millrace-audit', 'events', 'On', false) ON CONFLICT DO NOTHING`)
	d.exec(t, `INSERT INTO consumer_instances (instance) VALUES ('host-1') ON CONFLICT DO NOTHING`)
	d.exec(t, `INSERT INTO consumer_reports AS r (consumer, topic, partition, instance, epoch, state, paused, cause_class, cause_error, blocked_offset, blocked_key, stalled_since, tries)
		VALUES ('audit', 'events', $1, 'host-1', 0, $2, false, 'handler', 'no such account', 7, 'private', clock_timestamp() - make_interval(secs => $3), 3)
		ON CONFLICT (consumer, topic, partition, instance) DO UPDATE SET state = excluded.state, stalled_since = excluded.stalled_since`,
		partition, state, age.Seconds())
	d.signals.Wake(consumers.WakeReports)
}

// Two processes watch: somebody is told once, as soon as the receiver works, and
// once more when it is over.
func TestAStallIsToldOnceAndItsEndToo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := newReceiver(t, http.StatusInternalServerError, http.StatusTemporaryRedirect, http.StatusOK)
	cfg := alerts.Config{
		URL: secret.New(r.URL + "/hook"), Header: "X-Secret", StallAfter: time.Hour,
		Secret: func() (secret.Secret, error) { return secret.New("s3cret"), nil },
	}
	stop := d.watch(t, cfg)
	d.watch(t, cfg)
	d.stall(t, 1, "stalled", 30*time.Minute)
	d.stall(t, 2, "stalled", 90*time.Minute)

	for _, answer := range []int{http.StatusInternalServerError, http.StatusTemporaryRedirect, http.StatusOK} {
		p := r.next(t)
		require.Equal(t, answer, p.answer)
		assert.Equal(t, alerts.PartitionStalled, p.Alert)
		assert.Equal(t, "firing", p.Status)
		assert.Equal(t, "s3cret", p.header.Get("X-Secret"))
		assert.Equal(t, p.ID+"/firing", p.header.Get("Idempotency-Key"))
		assert.Equal(t, "consumer audit does not go on in partition 2 of events", p.Summary)
		assert.WithinDuration(t, time.Now().Add(-90*time.Minute), p.Since, 10*time.Minute)
		assert.JSONEq(t, `{"consumer":"audit","group":"millrace-audit","topic":"events","partition":2,"state":"stalled","owner":"host-1",
			"tries":3,"class":"handler","error":"no such account","offset":7}`, string(p.Details), "and not the key")
	}
	// The other process takes over, and tells nothing again. (Before it was noted that
	// somebody was told, it would.)
	require.Eventually(t, func() bool { return d.text(t, `SELECT coalesce(max(sent_status), '') FROM alerts`) == "FIRING" }, patience, 5*time.Millisecond)
	stop()
	d.stall(t, 2, "running", 0)
	p := r.next(t)
	assert.Equal(t, "resolved", p.Status)
	assert.NotNil(t, p.ResolvedAt)
	assert.Equal(t, "partition_stalled/audit/events/2", p.Key)

	// It begins again: another alert about the same.
	d.stall(t, 2, "offset_problem", 2*time.Hour)
	again := r.next(t)
	assert.Equal(t, "firing", again.Status)
	assert.NotEqual(t, p.ID, again.ID)
	assert.Equal(t, p.Key, again.Key)
	assert.Empty(t, r.posts)
}

func TestOutboxAndDeadLetters(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := newReceiver(t)
	d.watch(t, alerts.Config{URL: secret.New(r.URL), StallAfter: time.Hour, DeadLetters: 2})
	letter := `INSERT INTO dead_letters (id, consumer, consumer_group, topic, topic_id, partition, "offset", header_keys, header_values, class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at)
		VALUES (gen_random_uuid(), 'audit', 'g', 'events', gen_random_uuid(), 0, $1, '{}', '{}', 'handler', '', '', '', '', 1, now(), now())`
	d.exec(t, letter, 1)
	d.exec(t, `INSERT INTO outbox_events (id, seq, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers, status, attempts, last_error, shard)
		VALUES (gen_random_uuid(), 1, 'a', 'a-1', 't.v1', 'events', 'k', 'private', '{}', 'FAILED', 5, 'MESSAGE_TOO_LARGE', 0)`)
	p := r.next(t)
	assert.Equal(t, alerts.OutboxFailed, p.Alert)
	assert.JSONEq(t, `{"topic":"events","events":1,"error":"MESSAGE_TOO_LARGE"}`, string(p.Details))
	d.exec(t, letter, 2)
	p = r.next(t)
	assert.Equal(t, alerts.DeadLetters, p.Alert)
	assert.JSONEq(t, `{"open":2,"threshold":2,"by_consumer":{"audit":2}}`, string(p.Details))

	d.exec(t, `UPDATE outbox_events SET status = 'PENDING', attempts = 0`)
	p = r.next(t)
	assert.Equal(t, "resolved", p.Status)
	assert.Equal(t, alerts.OutboxFailed, p.Alert)
	d.exec(t, `UPDATE dead_letters SET status = 'DISCARDED' WHERE "offset" = 1`)
	p = r.next(t)
	assert.Equal(t, "resolved", p.Status)
	assert.Equal(t, alerts.DeadLetters, p.Alert)
}

// A saga that could not undo what it did is told of once it has waited for so long, and
// again when somebody has decided.
func TestASagaThatNeedsAttention(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := newReceiver(t)
	instance := func(id, status string, age time.Duration) {
		d.exec(t, `INSERT INTO wf_instances (id, kind, definition_id, definition_version, status, trouble, version, variables, state, started_at, updated_at)
			VALUES ($1, 'saga', 'order', 3, $2, $2, 9, '{"card":"private"}', '{"stuck":{"code":"failed","message":"the line is dead, token=abc","step_id":"pay"}}', now(),
				now() - make_interval(secs => $3))`, id, status, age.Seconds())
	}
	instance("0197a0c0-0000-7000-8000-000000000001", "NEEDS_ATTENTION", 2*time.Hour)
	instance("0197a0c0-0000-7000-8000-000000000002", "NEEDS_ATTENTION", 0)
	instance("0197a0c0-0000-7000-8000-000000000003", "COMPENSATED", 2*time.Hour)
	d.watch(t, alerts.Config{URL: secret.New(r.URL), AttentionAfter: time.Hour})
	p := r.next(t)
	assert.Equal(t, alerts.NeedsAttention, p.Alert)
	assert.Equal(t, "firing", p.Status)
	assert.Equal(t, "needs_attention/0197a0c0-0000-7000-8000-000000000001", p.Key)
	assert.Equal(t, "saga 0197a0c0-0000-7000-8000-000000000001 of order could not be undone and needs a decision", p.Summary)
	assert.JSONEq(t, `{"id":"0197a0c0-0000-7000-8000-000000000001","kind":"saga","definition":"order","version":3,"step":"pay","code":"failed",
		"error":"`+secret.Redact("the line is dead, token=abc")+`"}`, string(p.Details), "and not the state")

	d.exec(t, `UPDATE wf_instances SET status = 'COMPENSATING', trouble = 'COMPENSATING' WHERE id = '0197a0c0-0000-7000-8000-000000000001'`)
	p = r.next(t)
	assert.Equal(t, "resolved", p.Status)
	assert.Equal(t, alerts.NeedsAttention, p.Alert)
	assert.Empty(t, r.posts)
}

// What cannot be told says so without its address, and is not told late: only that
// it is over.
func TestAnAlertThatCannotBeSent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	stop := d.watch(t, alerts.Config{
		URL: secret.New("http://127.0.0.1:1/token-in-the-path"), StallAfter: time.Minute,
		Secret: func() (secret.Secret, error) { return secret.Secret{}, errors.New("permission denied") },
	})
	d.stall(t, 1, "stalled", time.Hour)
	require.Eventually(t, func() bool {
		return d.text(t, `SELECT coalesce(max(last_error), '') FROM alerts`) == "post alert: permission denied"
	}, patience, 10*time.Millisecond)
	stop()
	r := newReceiver(t)
	d.stall(t, 1, "running", 0)
	d.watch(t, alerts.Config{URL: secret.New(r.URL), StallAfter: time.Minute})
	require.Eventually(t, func() bool { return d.text(t, `SELECT status FROM alerts`) == "RESOLVED" }, patience, 10*time.Millisecond)
	assert.Equal(t, "resolved", r.next(t).Status)
	assert.Empty(t, r.posts)
}
