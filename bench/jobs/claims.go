package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
)

// What requirement 002's table says.
const (
	tableWorkers  = 32
	tableBatch    = 50
	tableInterval = 50 * time.Millisecond
	tableRate     = 2500
)

type table struct{ pass }

// Print implements frame.Part.
func (t table) Print(w io.Writer) {
	measure.Table(w, []string{"32 workers, batch 50, every 50 ms", "jobs/s", "CPU us/job", "PostgreSQL CPU us/job"}, t.row("started, polled, completed one by one"))
	_, _ = fmt.Fprintf(w, "%s\n", measure.Judge(t.rate() > tableRate, "%.0f per second, the table says about %d", t.rate(), tableRate))
}

func (b *bench) measureTable(ctx context.Context) (part frame.Part, err error) {
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	s, err := b.start(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	// More than can be done in the time.
	if err := s.begin(ctx, int(b.table.Seconds()+1)*tableWorkers*tableBatch*4); err != nil {
		return nil, err
	}
	var done atomic.Int64
	own, server, began := measure.OwnCPU(), measure.CPU(b.PostgresPIDs...), time.Now()
	errs := make([]error, tableWorkers)
	var wg sync.WaitGroup
	for i := range tableWorkers {
		wg.Go(func() {
			for time.Since(began) < b.table && errs[i] == nil {
				round := time.Now()
				var list []jobs.Job
				list, errs[i] = s.store.Claim(ctx, jobs.ClaimRequest{WorkerID: strconv.Itoa(i), Types: []string{jobType}, Max: tableBatch})
				errs[i] = errors.Join(errs[i], s.completeEach(ctx, list))
				done.Add(int64(len(list)))
				time.Sleep(tableInterval - time.Since(round))
			}
		})
	}
	wg.Wait()
	return table{pass{
		Jobs: int(done.Load()), Seconds: time.Since(began).Seconds(), CPU: (measure.OwnCPU() - own).Seconds(),
		PostgresCPU: (measure.CPU(b.PostgresPIDs...) - server).Seconds(),
	}}, errors.Join(errs...)
}

// completeEach completes jobs with a request each, all at once, as handlers do.
func (s *system) completeEach(ctx context.Context, list []jobs.Job) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, j := range list {
		wg.Go(func() {
			errs[i] = s.engine.CompleteJob(ctx, jobs.Completion{Holder: jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

type finished struct {
	Finished int             `json:"finished"`
	Few      measure.Summary `json:"few"`
	Many     measure.Summary `json:"many"`
}

// Print implements frame.Part.
func (f finished) Print(w io.Writer) {
	measure.Table(w, measure.Heading("a claim of 50 jobs, ms"), measure.Row("no finished jobs", f.Few), measure.Row(fmt.Sprintf("%d finished jobs", f.Finished), f.Many))
}

const plantSQL = `
	INSERT INTO jobs (id, instance_id, activity, step, step_id, job_type, run_at, retries_remaining, status, finished_at)
	SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 's', $1, now(), 0, 'COMPLETED', now() FROM generate_series(1, $2)`

func (b *bench) measureFinished(ctx context.Context) (part frame.Part, err error) {
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	s, err := b.start(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	found := finished{Finished: b.finished}
	if found.Few, err = s.timeClaims(ctx); err != nil {
		return nil, err
	}
	if _, err := b.pool.Exec(ctx, plantSQL, jobType, b.finished); err != nil {
		return nil, err
	}
	if _, err := b.pool.Exec(ctx, "VACUUM ANALYZE jobs"); err != nil {
		return nil, err
	}
	found.Many, err = s.timeClaims(ctx)
	return found, err
}

func (s *system) timeClaims(ctx context.Context) (measure.Summary, error) {
	const n, batch = 200, 50
	if err := s.begin(ctx, n*batch); err != nil {
		return measure.Summary{}, err
	}
	var samples []time.Duration
	for range n {
		began := time.Now()
		list, err := s.store.Claim(ctx, jobs.ClaimRequest{WorkerID: "bench", Types: []string{jobType}, Max: batch})
		if err != nil {
			return measure.Summary{}, err
		}
		samples = append(samples, time.Since(began))
		if err := s.complete(ctx, list); err != nil {
			return measure.Summary{}, err
		}
	}
	slices.Sort(samples)
	return measure.Summarize(samples), nil
}

type latency struct {
	Rate float64         `json:"rate"`
	Poll measure.Summary `json:"long_poll"`
}

// Print implements frame.Part.
func (l latency) Print(w io.Writer) {
	measure.Table(w, measure.Heading(fmt.Sprintf("from the start to the worker, ms, at %.0f/s", l.Rate)), measure.Row("long poll", l.Poll))
}

// latencyWorkers is how many wait in long polls.
const latencyWorkers = 16

func (b *bench) measureLatency(ctx context.Context) (part frame.Part, err error) {
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	s, err := b.start(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	working, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var samples []time.Duration
	var wg sync.WaitGroup
	for i := range latencyWorkers {
		wg.Go(func() {
			for working.Err() == nil {
				list, err := s.store.Claim(working, jobs.ClaimRequest{WorkerID: strconv.Itoa(i), Types: []string{jobType}, Max: 1, Wait: jobs.WaitMax})
				at := time.Now()
				if err != nil || len(list) == 0 {
					continue
				}
				mu.Lock()
				samples = append(samples, at.Sub(list[0].CreatedAt))
				mu.Unlock()
				_ = s.complete(ctx, list)
			}
		})
	}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / b.rate))
	defer ticker.Stop()
	var starts sync.WaitGroup
	for until := time.Now().Add(b.latency); time.Now().Before(until); <-ticker.C {
		starts.Go(func() { _, _ = s.engine.Start(ctx, engine.StartRequest{DefinitionID: "one-step"}) })
	}
	starts.Wait()
	stop()
	wg.Wait()
	slices.Sort(samples)
	return latency{b.rate, measure.Summarize(samples)}, nil
}
