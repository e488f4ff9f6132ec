package coordinator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/limits"
	limitstore "github.com/millrace/millrace/internal/limits/store"
)

// Definitions is what a Declarer needs of the limits that are declared;
// *limitstore.Store implements it.
type Definitions interface {
	Declare(ctx context.Context, definitions []limits.Definition, by string) ([]limitstore.Change, error)
	Differing(ctx context.Context, definitions []limits.Definition) ([]limitstore.Change, error)
}

// ClassRecorder makes resource classes known; *store.Store implements it.
type ClassRecorder interface {
	KnowClasses(ctx context.Context, names []string) error
}

// DeclarerConfig holds the settings of a Declarer.
type DeclarerConfig struct {
	// ID names this coordinator in what it declares.
	ID     string
	Limits Limits
	// Interval is how often it compares its limits with those that were declared last,
	// and how soon it tries again what did not succeed. Default 15 s.
	Interval time.Duration
}

// Declarer writes down what this coordinator decides by: at its start it declares its
// limits and resource classes and reports what has changed, and from then on it
// reports when another coordinator has declared other limits. It decides nothing.
type Declarer struct {
	cfg       DeclarerConfig
	known     Definitions
	classes   ClassRecorder
	log       *slog.Logger
	differing prometheus.Gauge
	reported  map[string]limitstore.Kind
}

// NewDeclarer makes a declarer; Run starts it.
func NewDeclarer(cfg DeclarerConfig, known Definitions, classes ClassRecorder, log *slog.Logger, reg prometheus.Registerer) *Declarer {
	if cfg.Interval <= 0 {
		cfg.Interval = 15 * time.Second
	}
	d := &Declarer{
		cfg: cfg, known: known, classes: classes, log: log,
		differing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_limits_differing",
			Help: "Limits that this coordinator has otherwise than the coordinator that declared its limits last; 0 when they agree.",
		}),
	}
	reg.MustRegister(d.differing)
	return d
}

// Run declares and then compares until ctx ends. What does not succeed is tried again.
func (d *Declarer) Run(ctx context.Context) error {
	ticker := time.NewTicker(d.cfg.Interval)
	defer ticker.Stop()
	step := d.declare
	for {
		if err := step(ctx); err == nil {
			step = d.compare
		} else if ctx.Err() == nil {
			d.log.WarnContext(ctx, "limits could not be compared with those that were declared, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (d *Declarer) declare(ctx context.Context) error {
	if err := d.classes.KnowClasses(ctx, slices.Sorted(maps.Keys(d.cfg.Limits.Classes))); err != nil {
		return err
	}
	changes, err := d.known.Declare(ctx, d.cfg.Limits.Set.All(), d.cfg.ID)
	if err != nil {
		return err
	}
	for _, c := range changes {
		d.report(ctx, c)
	}
	return nil
}

// report says what a change means for what runs and waits.
func (d *Declarer) report(ctx context.Context, c limitstore.Change) {
	log := d.log.With("limit", c.Name, "queued", c.Queued)
	switch c.Kind {
	case limitstore.Added:
		log.InfoContext(ctx, "limit is new: it applies to new decisions, and not to executions that are queued already", "is", c.Is.String())
	case limitstore.Removed:
		log.WarnContext(ctx, "limit is gone: it applies to no decision any more, nor to executions that were queued under it", "was", c.Was.String())
	case limitstore.Resized:
		log.WarnContext(ctx, "limit has changed: it applies to new decisions, those on executions that are queued already among them",
			"was", c.Was.String(), "is", c.Is.String())
	case limitstore.Rekeyed:
		log.WarnContext(ctx, "limit has changed: it applies to new decisions, and executions that are queued already keep the keys they have",
			"was", c.Was.String(), "is", c.Is.String())
	}
}

// compare reports a difference when it is found and when it is over.
func (d *Declarer) compare(ctx context.Context) error {
	changes, err := d.known.Differing(ctx, d.cfg.Limits.Set.All())
	if err != nil {
		return err
	}
	d.differing.Set(float64(len(changes)))
	found := make(map[string]limitstore.Kind, len(changes))
	for _, c := range changes {
		found[c.Name] = c.Kind
	}
	if maps.Equal(found, d.reported) {
		return nil
	}
	d.reported = found
	if len(found) == 0 {
		d.log.InfoContext(ctx, "coordinators have the same limits again")
		return nil
	}
	d.log.WarnContext(ctx, "another coordinator has declared other limits: each decides by its own until both are configured alike",
		"limits", slices.Sorted(maps.Keys(found)))
	return nil
}
