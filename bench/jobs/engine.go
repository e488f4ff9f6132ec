package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/postgres"
)

const oneStep = `{"id": "one-step", "name": "One step", "steps": [{"id": "` + jobType + `", "name": "Nothing", "type": "SERVICE_TASK", "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

// system is an engine with its jobs.
type system struct {
	engine  *engine.Engine
	store   *jobs.Store
	signals *postgres.Signals
	pool    *pgxpool.Pool
	stop    func() error
}

// start starts an engine that knows the workflow of one step.
func (b *bench) start(ctx context.Context, lifecycle bool) (*system, error) {
	s := &system{signals: postgres.NewSignals(b.pool, b.Log), pool: b.pool}
	var err error
	if s.store, err = jobs.NewStore(jobs.Config{Pool: b.pool, Signals: s.signals, Log: b.Log}); err != nil {
		return nil, err
	}
	defined := definitions.New(definitions.Config{Pool: b.pool, Signals: s.signals})
	if _, _, err := defined.Put(ctx, []byte(oneStep), "workflow", "bench"); err != nil {
		return nil, err
	}
	s.engine = engine.New(engine.Config{
		Pool: b.pool, Plans: defined, Jobs: s.store, Signals: s.signals, NoLifecycle: !lifecycle, Log: b.Log,
	})
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for _, run := range []func(context.Context) error{s.signals.Run, s.store.Run, defined.Run, s.engine.Run} {
		wg.Go(func() { errs <- run(running) })
	}
	s.stop = func() error {
		cancel()
		wg.Wait()
		close(errs)
		var all []error
		for err := range errs {
			all = append(all, err)
		}
		return errors.Join(all...)
	}
	return s, nil
}

func (s *system) begin(ctx context.Context, n int) error {
	const batch = 1000
	for done := 0; done < n; done += batch {
		requests := make([]engine.StartRequest, min(batch, n-done))
		for i := range requests {
			requests[i].DefinitionID = "one-step"
		}
		_, errs := s.engine.StartMany(ctx, requests)
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, "ANALYZE jobs, wf_instances")
	return err
}

type batches struct {
	Batch  int    `json:"batch"`
	Ways   []way  `json:"ways"`
	Target string `json:"-"`
}

type way struct {
	Name string `json:"name"`
	pass
}

// Print implements frame.Part.
func (f batches) Print(w io.Writer) {
	rows := [][]string{{"claim and complete over the API's path", "jobs/s", "CPU us/job", "PostgreSQL CPU us/job"}}
	best := 0.0
	for _, way := range f.Ways {
		rows = append(rows, way.row(way.Name))
		best = max(best, way.rate())
	}
	measure.Table(w, rows...)
	_, _ = fmt.Fprintf(w, "%s\n", measure.Judge(best >= 20_000, "%.0f per second in batches of %d, want at least 20 000", best, f.Batch))
}

func (b *bench) measureBatches(ctx context.Context) (frame.Part, error) {
	found := batches{Batch: b.batch}
	for _, w := range []struct {
		name           string
		lifecycle      bool
		batch, clients int
		n              int
	}{
		{"batches, lifecycle events off", false, b.batch, 4, b.batches},
		{"batches, lifecycle events on", true, b.batch, 4, b.batches},
		{"one by one, 1 client", true, 1, 1, min(b.batches, 1000)},
		{"one by one, 64 clients", true, 1, 64, min(b.batches, 20_000)},
	} {
		p, err := b.throughEngine(ctx, w.lifecycle, w.batch, w.clients, w.n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		found.Ways = append(found.Ways, way{w.name, p})
	}
	return found, nil
}

func (b *bench) throughEngine(ctx context.Context, lifecycle bool, batch, clients, n int) (p pass, err error) {
	if err := b.empty(ctx); err != nil {
		return pass{}, err
	}
	s, err := b.start(ctx, lifecycle)
	if err != nil {
		return pass{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.begin(ctx, n); err != nil {
		return pass{}, err
	}
	own, server, began := measure.OwnCPU(), measure.CPU(b.PostgresPIDs...), time.Now()
	if err := s.work(ctx, batch, clients, n); err != nil {
		return pass{}, err
	}
	return pass{
		Jobs: n, Seconds: time.Since(began).Seconds(), CPU: (measure.OwnCPU() - own).Seconds(),
		PostgresCPU: (measure.CPU(b.PostgresPIDs...) - server).Seconds(),
	}, nil
}

// work claims and completes n jobs.
func (s *system) work(ctx context.Context, batch, clients, n int) error {
	var done atomic.Int64
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			worker := "bench-" + strconv.Itoa(i)
			for done.Load() < int64(n) && errs[i] == nil {
				list, err := s.store.Claim(ctx, jobs.ClaimRequest{WorkerID: worker, Types: []string{jobType}, Max: batch, Wait: 20 * time.Millisecond})
				if err != nil {
					errs[i] = err
					return
				}
				errs[i] = s.complete(ctx, list)
				done.Add(int64(len(list)))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *system) complete(ctx context.Context, list []jobs.Job) error {
	if len(list) == 0 {
		return nil
	}
	reports := make([]jobs.Completion, len(list))
	for i, j := range list {
		reports[i].Holder = jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
	}
	return errors.Join(s.engine.CompleteJobs(ctx, reports)...)
}
