package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/lease"
)

// Admission is what the admitter needs of the executions; *store.Store
// implements it.
type Admission interface {
	Admit(ctx context.Context, a store.Admission) (store.Admitted, error)
	RecordRate(ctx context.Context, class string, perSecond float64) error
	Classes(ctx context.Context) ([]string, error)
}

// AdmitterConfig holds the settings of an Admitter.
type AdmitterConfig struct {
	// ID names this coordinator in leases and events.
	ID     string
	Limits Limits
	// BatchSize is how many executions one transaction admits at most. Default 512.
	BatchSize int
	// PollInterval is how often the queue is looked at when nothing woke the
	// admitter. Default 250 ms.
	PollInterval time.Duration
	// ClassInterval is how often it looks for resource classes that are new.
	// Default 2 s.
	ClassInterval time.Duration
}

func (c AdmitterConfig) withDefaults() AdmitterConfig {
	if c.BatchSize == 0 {
		c.BatchSize = 512
	}
	if c.PollInterval == 0 {
		c.PollInterval = 250 * time.Millisecond
	}
	if c.ClassInterval == 0 {
		c.ClassInterval = 2 * time.Second
	}
	return c
}

// Wakes hands out wake-ups by name; see postgres.Signals.
type Wakes interface {
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Admitter lets queued executions through, one active admitter per class.
type Admitter struct {
	cfg       AdmitterConfig
	admission Admission
	leases    *lease.Manager
	routes    Routes
	wakes     Wakes
	log       *slog.Logger
	admitted  *prometheus.CounterVec
	free      *prometheus.GaugeVec
}

// NewAdmitter makes an admitter; Run starts it.
func NewAdmitter(
	cfg AdmitterConfig, admission Admission, leases *lease.Manager, wakes Wakes,
	log *slog.Logger, reg prometheus.Registerer,
) *Admitter {
	a := &Admitter{
		cfg: cfg.withDefaults(), admission: admission, leases: leases, wakes: wakes, log: log,
		admitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_admitted_total", Help: "Executions that were admitted, by resource class.",
		}, []string{"resource_class"}),
		free: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_capacity_free_slots",
			Help: "Slots that were free after the last round of admission, by resource class.",
		}, []string{"resource_class"}),
	}
	reg.MustRegister(a.admitted, a.free)
	return a
}

// Run admits until ctx ends.
func (a *Admitter) Run(ctx context.Context) error {
	var classes sync.WaitGroup
	defer classes.Wait()
	started := map[string]bool{}
	ticker := time.NewTicker(a.cfg.ClassInterval)
	defer ticker.Stop()
	wakes, stop := a.wakes.Subscribe(store.WakeAdmission)
	defer stop()
	for {
		found, err := a.admission.Classes(ctx)
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "resource classes could not be read, it will be repeated", "error", err)
		}
		for _, class := range found {
			if !started[class] {
				started[class] = true
				classes.Go(func() { a.runClass(ctx, class) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-unlessAny(wakes, len(started)):
			// The first worker of all has announced itself: no reason to let its work
			// wait for the ticker.
		}
	}
}

// unlessAny returns the wakes only while there is no class yet. After that each
// class has its own subscription, and the ticker finds new ones.
func unlessAny(wakes <-chan struct{}, classes int) <-chan struct{} {
	if classes > 0 {
		return nil
	}
	return wakes
}

// runClass is the active admitter of one class whenever its lease can be had.
func (a *Admitter) runClass(ctx context.Context, class string) {
	err := a.leases.Run(ctx, store.AdmitterLease(class), func(ctx context.Context, held *lease.Held) error {
		a.log.InfoContext(ctx, "admitter is active", "resource_class", class, "token", held.Token())
		a.recordRoute(ctx, class)
		a.admitWhileHeld(ctx, class, held)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		a.log.ErrorContext(ctx, "admitter of a class has ended", "resource_class", class, "error", err)
	}
}

func (a *Admitter) admitWhileHeld(ctx context.Context, class string, held *lease.Held) {
	wakes, stop := a.wakes.Subscribe(store.WakeAdmission)
	defer stop()
	// A round builds on what the one before it has taken, also where the answer to its
	// commit got lost.
	fence := func(ctx context.Context, tx pgx.Tx) error { return held.CheckAlone(ctx, tx) }
	memory := &store.Memory{}
	var pace pace
	for ctx.Err() == nil {
		done, err := a.admission.Admit(ctx, store.Admission{
			Class: class, Topic: a.topic(class), Admitter: a.cfg.ID, Cap: a.cfg.Limits.Classes[class].cap(), Max: a.cfg.BatchSize,
			Config: a.cfg.Limits.choice(), Fence: fence, Memory: memory,
		})
		switch {
		case err != nil && ctx.Err() == nil:
			a.log.WarnContext(ctx, "admission did not succeed, it will be repeated", "resource_class", class, "error", err)
		case err == nil:
			a.admitted.WithLabelValues(class).Add(float64(done.Executions))
			a.free.WithLabelValues(class).Set(float64(done.Free))
			a.keepPace(ctx, class, &pace, done)
			if done.More {
				continue
			}
		}
		timer := time.NewTimer(a.wait(done))
		select {
		case <-ctx.Done():
		case <-wakes:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// keepPace remembers how fast the class is admitted, from which people are told how
// long they will wait.
func (a *Admitter) keepPace(ctx context.Context, class string, p *pace, done store.Admitted) {
	rate, fresh := p.round(time.Now(), done.Executions, done.Crowded)
	if !fresh {
		return
	}
	if err := a.admission.RecordRate(ctx, class, rate); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "rate of admission was not recorded", "resource_class", class, "error", err)
	}
}

// wait returns how long to wait for a wake-up: no longer than until something may go
// on by itself.
func (a *Admitter) wait(done store.Admitted) time.Duration {
	if done.Wait == 0 {
		return a.cfg.PollInterval
	}
	return min(done.Wait, a.cfg.PollInterval)
}
