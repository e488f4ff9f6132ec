package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

// pass is one way's turn in a round.
type pass struct {
	Jobs    int     `json:"jobs"`
	Seconds float64 `json:"seconds"`
	// CPU is the processor time of the workers' process, PostgresCPU that of the server.
	CPU         float64 `json:"cpu_seconds"`
	PostgresCPU float64 `json:"postgres_cpu_seconds"`
}

func (p pass) rate() float64 { return float64(p.Jobs) / p.Seconds }

func (p pass) row(name string) []string {
	each := func(seconds float64) string { return fmt.Sprintf("%.0f", seconds*1e6/float64(p.Jobs)) }
	return []string{name, fmt.Sprintf("%.0f", p.rate()), each(p.CPU), each(p.PostgresCPU)}
}

type comparison struct {
	Workers int     `json:"workers"`
	Ours    []pass  `json:"ours"`
	River   []pass  `json:"river"`
	Ratio   float64 `json:"ratio"`
}

// Print implements frame.Part.
func (c comparison) Print(w io.Writer) {
	rows := [][]string{{"claim and complete", "jobs/s", "CPU us/job", "PostgreSQL CPU us/job"}}
	for i := range c.Ours {
		rows = append(rows, c.Ours[i].row(fmt.Sprintf("internal/jobs, round %d", i+1)), c.River[i].row(fmt.Sprintf("River, round %d", i+1)))
	}
	measure.Table(w, rows...)
	_, _ = fmt.Fprintf(w, "%s\n", measure.Judge(c.Ratio >= 1.3, "the median ratio is %.2f, want at least 1.3", c.Ratio))
}

func (b *bench) measureComparison(ctx context.Context) (frame.Part, error) {
	binary, err := b.buildRiver(ctx)
	if err != nil {
		return nil, err
	}
	found := comparison{Workers: b.workers}
	var ratios []float64
	for range b.rounds {
		ours, err := b.ours(ctx)
		if err != nil {
			return nil, fmt.Errorf("ours: %w", err)
		}
		river, err := b.river(ctx, binary)
		if err != nil {
			return nil, fmt.Errorf("river: %w", err)
		}
		found.Ours, found.River = append(found.Ours, ours), append(found.River, river)
		ratios = append(ratios, ours.rate()/river.rate())
	}
	found.Ratio = measure.Median(ratios)
	return found, nil
}

// buildRiver builds the other module. It has to be run from the repository's top.
func (b *bench) buildRiver(ctx context.Context) (string, error) {
	binary := filepath.Join(b.Dir, "jobs-river")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	cmd.Dir, cmd.Stderr = filepath.Join("bench", "jobs-river"), os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build bench/jobs-river (run this from the repository's top): %w", err)
	}
	return binary, nil
}

func (b *bench) river(ctx context.Context, binary string) (pass, error) {
	before := measure.CPU(b.PostgresPIDs...)
	cmd := exec.CommandContext(ctx, binary, "-dsn", b.DSN, "-jobs", strconv.Itoa(b.jobs), "-workers", strconv.Itoa(b.workers), "-conns", strconv.Itoa(b.conns))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return pass{}, err
	}
	var p pass
	if err := json.Unmarshal(out, &p); err != nil {
		return pass{}, err
	}
	// With what the insertion took, which is in ours as well.
	p.PostgresCPU = (measure.CPU(b.PostgresPIDs...) - before).Seconds()
	_, err = b.pool.Exec(ctx, "TRUNCATE river_job")
	return p, err
}

const jobType = "nothing"

// ours claims for as many workers as River's client has, and completes what they did.
func (b *bench) ours(ctx context.Context) (pass, error) {
	if err := b.empty(ctx); err != nil {
		return pass{}, err
	}
	postgresBefore := measure.CPU(b.PostgresPIDs...)
	store, err := jobs.NewStore(jobs.Config{Pool: b.pool})
	if err != nil {
		return pass{}, err
	}
	shell := &jobstest.Shell{Pool: b.pool, Store: store}
	const batch = 10_000
	for done := 0; done < b.jobs; done += batch {
		specs := make([]jobstest.Spec, min(batch, b.jobs-done))
		for i := range specs {
			specs[i].JobType = jobType
		}
		if _, err := shell.Begin(ctx, specs...); err != nil {
			return pass{}, err
		}
	}
	if _, err := b.pool.Exec(ctx, "ANALYZE jobs, wf_instances"); err != nil {
		return pass{}, err
	}
	cpu, began := measure.OwnCPU(), time.Now()
	if err := b.drain(ctx, store, b.jobs); err != nil {
		return pass{}, err
	}
	return pass{
		Jobs: b.jobs, Seconds: time.Since(began).Seconds(), CPU: (measure.OwnCPU() - cpu).Seconds(),
		PostgresCPU: (measure.CPU(b.PostgresPIDs...) - postgresBefore).Seconds(),
	}, nil
}

// completers is how many transactions complete jobs at once.
const completers = 2

// drain has workers take all jobs: fetchers claim for them, each worker does nothing with
// one job at a time, completers write what they report.
func (b *bench) drain(ctx context.Context, store *jobs.Store, all int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, done := make(chan jobs.Job, b.workers), make(chan jobs.Holder, b.workers)
	var left atomic.Int64
	left.Store(int64(all))
	var fetchers, workers, writers sync.WaitGroup
	fetchers.Go(func() {
		for ctx.Err() == nil {
			list, err := store.Claim(ctx, jobs.ClaimRequest{WorkerID: "bench", Types: []string{jobType}, Max: min(jobs.MaxJobs, b.workers)})
			if err != nil {
				cancel(err)
			}
			if err != nil || len(list) == 0 {
				return
			}
			for _, j := range list {
				work <- j
			}
		}
	})
	for range b.workers {
		workers.Go(func() {
			for j := range work {
				done <- jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
			}
		})
	}
	for range completers {
		writers.Go(func() {
			for batch := gather(done); len(batch) > 0; batch = gather(done) {
				if err := b.finish(ctx, store, batch); err != nil {
					cancel(err)
				}
				left.Add(-int64(len(batch)))
			}
		})
	}
	fetchers.Wait()
	close(work)
	workers.Wait()
	close(done)
	writers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if n := left.Load(); n != 0 {
		return fmt.Errorf("%d of %d jobs are left", n, all)
	}
	return nil
}

// gather takes what there is, up to 1000, and at least one; none when there is no more.
func gather(done <-chan jobs.Holder) []jobs.Holder {
	first, ok := <-done
	if !ok {
		return nil
	}
	batch := []jobs.Holder{first}
	for len(batch) < jobs.MaxJobs {
		select {
		case h, ok := <-done:
			if !ok {
				return batch
			}
			batch = append(batch, h)
		default:
			return batch
		}
	}
	return batch
}

// finish completes jobs as the engine does, without its instances: lock, judge, write.
func (b *bench) finish(ctx context.Context, store *jobs.Store, batch []jobs.Holder) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		ids, held := make([]uuid.UUID, len(batch)), make(map[uuid.UUID]jobs.Held, len(batch))
		for i, h := range batch {
			ids[i] = h.JobID
		}
		var lock, write pgx.Batch
		lock.Queue(jobs.PlanSQL)
		store.Lock(&lock, ids, held)
		if err := tx.SendBatch(ctx, &lock).Close(); err != nil {
			return err
		}
		var w jobs.Writes
		for _, by := range batch {
			if err := jobs.Judge(held[by.JobID], by, jobs.Completes); err != nil {
				return err
			}
			w.Finish = append(w.Finish, jobs.Finished{ID: by.JobID, JobType: jobType, Status: jobs.Completed, WorkerID: by.WorkerID})
		}
		if _, err := store.Queue(&write, w); err != nil {
			return err
		}
		return tx.SendBatch(ctx, &write).Close()
	})
}
