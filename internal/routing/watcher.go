package routing

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// watchInterval is how often routes are looked at.
const watchInterval = 10 * time.Second

// Watcher tells when tasks go where nobody reads them: as a metric, and in the log
// when it begins and when it is over. Every process that runs one shows the same.
type Watcher struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	readers *prometheus.GaugeVec
	last    map[string]Verdict // by class, what was seen last
	told    map[string]Verdict // what was logged last
}

// NewWatcher returns a watcher that looks while it runs.
func NewWatcher(pool *pgxpool.Pool, log *slog.Logger, reg prometheus.Registerer) *Watcher {
	w := &Watcher{
		pool: pool, log: log, last: map[string]Verdict{}, told: map[string]Verdict{},
		readers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_task_route_readers",
			Help: "Consumers that read the topic to which the tasks of a resource class go. At 0 nothing of the class starts.",
		}, []string{"resource_class", "topic"}),
	}
	reg.MustRegister(w.readers)
	return w
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "routes of tasks could not be read, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Look looks once. What is wrong is logged when it is seen for the second time in a
// row: processes that start report one after the other.
func (w *Watcher) Look(ctx context.Context) error {
	routes, err := Inspect(ctx, w.pool)
	if err != nil {
		return err
	}
	w.readers.Reset() // a route that was changed has another topic
	for _, r := range routes {
		verdict, words := r.Judge()
		if verdict != Idle {
			w.readers.WithLabelValues(r.Class, r.Topic).Set(float64(max(len(r.Consumers), r.Readers)))
		}
		settled := w.last[r.Class] == verdict
		w.last[r.Class] = verdict
		if settled && w.told[r.Class] != verdict {
			w.tell(ctx, r, verdict, words)
		}
	}
	return nil
}

func (w *Watcher) tell(ctx context.Context, r Route, verdict Verdict, words string) {
	before := w.told[r.Class]
	w.told[r.Class] = verdict
	switch {
	case verdict == Unread || verdict == Partial:
		w.log.WarnContext(ctx, "settings of coordinator and workers differ", "resource_class", r.Class, "topic", r.Topic,
			"coordinator", r.Coordinator, "verdict", verdict, "cause", words)
	case before == Unread || before == Partial || verdict == Staged:
		w.log.InfoContext(ctx, "tasks of a class are read", "resource_class", r.Class, "topic", r.Topic, "verdict", verdict, "detail", words)
	}
}
