package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// errUnfair is the verdict that the quiet user had to wait for the neighbour.
var errUnfair = errors.New("the quiet user waited behind the noisy one")

// pollEvery is how often the quiet user looks at its executions.
const pollEvery = 20 * time.Millisecond

// scene is one performance.
type scene struct {
	options
	outMu        sync.Mutex
	out          io.Writer
	starts       *starts
	noisy, quiet *user
	began        time.Time

	mu sync.Mutex
	// accepted counts the noisy user's executions.
	accepted int
	// told is up to which count progress was printed.
	told int
	// news is closed and replaced when accepted has changed.
	news chan struct{}
}

// turn is what became of one execution of the quiet user.
type turn struct {
	id string
	// waiting is how many of the neighbour's had been accepted and not started when it
	// was submitted.
	waiting                      int
	submitted, queued, startedAt time.Time
	// overtaken is how many of the neighbour's started while it stood in the queue.
	overtaken int
}

// run performs it and returns errUnfair when that is the verdict.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	s := &scene{options: o, out: out, starts: &starts{first: map[string]start{}}, news: make(chan struct{})}
	s.say("starting a broker, a database and all of Millrace in this process ...")
	i, err := install(ctx, o, s.starts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	s.noisy, s.quiet = newUser(noisyUser, i.url), newUser(quietUser, i.url)
	defer s.noisy.close()
	defer s.quiet.close()

	turns, last, err := s.perform(ctx)
	if err != nil {
		return err
	}
	if err := s.explain(ctx, last); err != nil {
		return err
	}
	return s.judge(turns)
}

// perform lets both users submit at the same time and waits until all executions of
// the quiet one have started. It returns what became of those, and the last of the
// noisy user's.
func (s *scene) perform(ctx context.Context) (turns []*turn, last string, err error) {
	s.began = time.Now()
	s.say("%q submits %d executions, %d in each request; %d run at once, %s each", noisyUser, s.options.noisy, s.batch, s.slots, s.work)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	all.Go(func() {
		id, err := s.noisy.flood(ctx, s.options, s.acceptedMore)
		if err != nil {
			stop(err)
			return
		}
		last = id
		s.say("all %d are in the queue", s.options.noisy)
	})
	for n := range s.options.quiet {
		// Spread over the whole of the neighbour's submissions, the last at their end.
		t := &turn{}
		if err := s.visit(ctx, t, s.options.noisy*(n+1)/s.options.quiet); err != nil {
			stop(err)
			break
		}
		turns = append(turns, t)
		all.Go(func() {
			if err := s.follow(ctx, t); err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	return turns, last, nil
}

// visit submits an execution of the quiet user once so many of the neighbour's have
// been accepted.
func (s *scene) visit(ctx context.Context, t *turn, after int) error {
	if err := s.waitAccepted(ctx, after); err != nil {
		return err
	}
	t.submitted, t.waiting = time.Now(), s.waiting()
	e, err := s.quiet.submit(ctx)
	t.id = e.ID
	return err
}

func (s *scene) say(format string, args ...any) {
	after := time.Duration(0)
	if !s.began.IsZero() {
		after = time.Since(s.began)
	}
	s.outMu.Lock()
	defer s.outMu.Unlock()
	fmt.Fprintf(s.out, "%6.1f s  %s\n", after.Seconds(), fmt.Sprintf(format, args...))
}

// acceptedMore notes an answer to the noisy user, and prints progress ten times.
func (s *scene) acceptedMore(n int) {
	s.mu.Lock()
	s.accepted += n
	accepted := s.accepted
	tell := accepted-s.told >= s.options.noisy/10
	if tell {
		s.told = accepted
	}
	close(s.news)
	s.news = make(chan struct{})
	s.mu.Unlock()
	if tell {
		s.say("%d of %q accepted, %d started", accepted, noisyUser, s.starts.all(noisyUser))
	}
}

// waitAccepted waits until so many executions of the noisy user were accepted.
func (s *scene) waitAccepted(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		enough, news := s.accepted >= n, s.news
		s.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waiting is how many executions of the noisy user have been accepted and not
// started.
func (s *scene) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted - s.starts.all(noisyUser)
}

// follow waits until an execution of the quiet user has started, and says how that
// went.
func (s *scene) follow(ctx context.Context, t *turn) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		e, err := s.quiet.get(ctx, t.id)
		if err != nil {
			return err
		}
		at, started := s.starts.of(t.id)
		if started && e.QueuedAt != nil {
			t.queued, t.startedAt = *e.QueuedAt, at
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("execution %s of %q is %s and has not started: %w", t.id, quietUser, e.State, context.Cause(ctx))
		}
	}
	// The times of the queue are those of the database, which is on this machine.
	t.overtaken = s.starts.between(noisyUser, t.queued, t.startedAt)
	s.say("%q started %s after it was submitted with %d of the neighbour's ahead; %d of those came first once it was in the queue",
		quietUser, seconds(t.startedAt.Sub(t.submitted)), t.waiting, t.overtaken)
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// explain prints why the last execution of the noisy user waits.
func (s *scene) explain(ctx context.Context, id string) error {
	x, err := s.noisy.explain(ctx, id)
	if err != nil {
		return err
	}
	s.say("why does the last of %q wait?", noisyUser)
	fmt.Fprintf(s.out, "\n    %s\n", x.Summary)
	for i, w := range x.Waits {
		if i > 0 { // the summary has the first
			fmt.Fprintf(s.out, "    Also: %s.\n", w.Message)
		}
		fmt.Fprintf(s.out, "      What would release it: %s.\n", w.Release)
	}
	fmt.Fprintln(s.out)
	return nil
}

// judge prints the verdict.
func (s *scene) judge(turns []*turn) error {
	worst := slices.MaxFunc(turns, func(a, b *turn) int { return a.overtaken - b.overtaken })
	least := slices.MinFunc(turns, func(a, b *turn) int { return a.waiting - b.waiting })
	verdict, is := "FAIR", error(nil)
	if worst.overtaken > s.limit {
		verdict, is = "UNFAIR", errUnfair
	}
	took := make([]time.Duration, len(turns))
	for i, t := range turns {
		took[i] = t.startedAt.Sub(t.submitted)
	}
	slices.Sort(took)
	fmt.Fprintf(s.out, "%s: the %d executions of %q started %s after they were submitted (median; %s at most), behind %d or more of %q, of which at most %d came first (limit %d)\n",
		verdict, len(turns), quietUser, seconds(took[len(took)/2]), seconds(took[len(took)-1]), least.waiting, noisyUser, worst.overtaken, s.limit)
	return is
}
