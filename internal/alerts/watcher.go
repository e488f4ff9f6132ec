package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
)

// leaseName is what the one that sends holds.
const leaseName = "alerts"

// Defaults of Config.
const (
	StallAfterDefault     = time.Hour
	AttentionAfterDefault = time.Minute
	IntervalDefault       = 15 * time.Second
	TimeoutDefault        = 10 * time.Second
	HeaderDefault         = "Authorization"

	backoffMin = 5 * time.Second
	backoffMax = 5 * time.Minute
	// rest is the shortest time between two looks that reports lead to.
	rest = 500 * time.Millisecond
)

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Config is what a Watcher works with. Pool, Leases, Signals and URL are required.
type Config struct {
	Pool    *pgxpool.Pool
	Leases  *lease.Manager
	Signals Signals
	// URL is where alerts are posted. It is a secret, because receivers tend to
	// recognise senders by it.
	URL secret.Secret
	// Header carries what Secret returns, unless that is empty. Secret is asked for
	// every post, so that a rotated one needs no restart.
	Header string
	Secret func() (secret.Secret, error)
	// StallAfter is how long a partition may be stalled before it is an alert.
	StallAfter time.Duration
	// DeadLetters is how many open dead letters are an alert; 0 turns it off.
	DeadLetters int
	// AttentionAfter is how long an instance of a saga or workflow may need attention before
	// it is an alert.
	AttentionAfter time.Duration
	// Interval is how often conditions are looked at when nothing wakes us.
	Interval time.Duration
	// BackoffMin and BackoffMax bound the pause after a post that failed.
	BackoffMin, BackoffMax time.Duration
	// HTTP posts. It must not follow redirects. Nil makes one with TimeoutDefault.
	HTTP *http.Client
	// Version names the sender in User-Agent.
	Version    string
	Registerer prometheus.Registerer
	Log        *slog.Logger
	// Now is replaced in tests.
	Now func() time.Time
}

// Watcher looks for what is worth telling, and tells it.
type Watcher struct {
	cfg    Config
	firing prometheus.Gauge
	posts  *prometheus.CounterVec
}

// New returns a watcher.
func New(cfg Config) (*Watcher, error) {
	cfg.Header = cmp.Or(cfg.Header, HeaderDefault)
	cfg.StallAfter = cmp.Or(cfg.StallAfter, StallAfterDefault)
	cfg.AttentionAfter = cmp.Or(cfg.AttentionAfter, AttentionAfterDefault)
	cfg.Interval = cmp.Or(cfg.Interval, IntervalDefault)
	cfg.BackoffMin, cfg.BackoffMax = cmp.Or(cfg.BackoffMin, backoffMin), cmp.Or(cfg.BackoffMax, backoffMax)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Secret == nil {
		cfg.Secret = func() (secret.Secret, error) { return secret.Secret{}, nil }
	}
	if cfg.HTTP == nil {
		cfg.HTTP = newHTTP()
	}
	w := &Watcher{
		cfg: cfg,
		firing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_alerts_firing", Help: "Alerts that are firing, in the process that sends them.",
		}),
		posts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_alert_posts_total", Help: "Posts to the webhook, by outcome: sent, failed.",
		}, []string{"outcome"}),
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{w.firing, w.posts} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("register alert metrics: %w", err)
			}
		}
	}
	return w, nil
}

// Run watches until ctx ends, whenever it is this process's turn.
func (w *Watcher) Run(ctx context.Context) error {
	return w.cfg.Leases.Run(ctx, leaseName, w.watch)
}

// watch looks and sends while the lease is held.
func (w *Watcher) watch(ctx context.Context, held *lease.Held) error {
	defer w.firing.Set(0)
	reports, stop := w.cfg.Signals.Subscribe(consumers.WakeReports)
	defer stop()
	ticker := time.NewTicker(w.cfg.Interval)
	defer ticker.Stop()
	for failing := false; ; {
		err := w.turn(ctx, held)
		rested := time.After(rest)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, lease.ErrLost) {
			return err
		}
		if err != nil && !failing {
			w.cfg.Log.WarnContext(ctx, "alerts are not looked at, it will be repeated", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-w.due(ctx):
		case <-reports:
			// They may come in swarms.
			select {
			case <-ctx.Done():
				return nil
			case <-rested:
			}
		}
	}
}

// due returns a channel that receives when the next post that failed is to be
// repeated, if that is before the next look.
func (w *Watcher) due(ctx context.Context) <-chan time.Time {
	var wait *float64
	err := w.cfg.Pool.QueryRow(ctx, `
		SELECT extract(epoch FROM min(next_attempt_at) - clock_timestamp())::float8 FROM alerts WHERE sent_status IS DISTINCT FROM status`).Scan(&wait)
	if err != nil || wait == nil {
		return nil
	}
	return time.After(max(time.Duration(*wait*float64(time.Second)), 10*time.Millisecond))
}

// turn brings the table up to date and sends what is to be sent.
func (w *Watcher) turn(ctx context.Context, held *lease.Held) error {
	err := postgres.InTx(ctx, w.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		now, err := w.evaluate(ctx, tx)
		if err != nil {
			return err
		}
		w.firing.Set(float64(len(now)))
		return w.note(ctx, tx, now)
	})
	if err != nil {
		return err
	}
	return w.send(ctx, held)
}
