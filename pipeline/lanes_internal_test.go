package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

// oneLane is a LaneStore with one lane of events, which the tests look into.
type oneLane struct {
	mu      sync.Mutex
	events  []topics.Record
	leased  bool
	closed  bool
	nextTry time.Time
	keepErr error
	kept    int
	left    []error
	tries   int
}

func (*oneLane) Take(context.Context, Partition) (Position, error) { return Position{}, nil }

func (s *oneLane) Apply(ctx context.Context, w Work) ([]Verdict, error) {
	if err := w.Effect(ctx, nil, []int{0}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = s.events[1:]
	return []Verdict{Fresh}, nil
}

func (s *oneLane) ClaimLane(_ context.Context, groups []string, _ time.Duration) (Lane, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leased || s.closed || time.Now().Before(s.nextTry) {
		return Lane{}, false, nil
	}
	s.leased = true
	return Lane{ID: 1, Token: 1, Partition: Partition{Group: groups[0], Topic: "t"}, Tries: s.tries}, true, nil
}

func (s *oneLane) KeepLane(context.Context, Lane, time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
	return s.keepErr
}

func (s *oneLane) LaneEvents(_ context.Context, _ Lane, limit int) ([]topics.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[:min(limit, len(s.events))], nil
}

func (s *oneLane) CloseLane(context.Context, Lane) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return true, nil
}

func (s *oneLane) LeaveLane(_ context.Context, _ Lane, cause error, wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leased, s.left, s.nextTry = false, append(s.left, cause), time.Now().Add(wait)
	if s.closed {
		return ErrFenced
	}
	if cause != nil {
		s.tries++
	}
	return nil
}

// newLaneTest returns a drainer of n events.
func newLaneTest(t *testing.T, n int, handle func(context.Context, topics.Record) error) (*drainer, *oneLane) {
	t.Helper()
	s := &oneLane{}
	for i := range n {
		s.events = append(s.events, topics.Record{Topic: "t", Key: []byte("k"), Offset: int64(i), Value: fmt.Appendf(nil, "%d", i)})
	}
	p, err := NewProcessor(Consumer{
		Name: "c", Topic: "t", Timeout: -1, Delivery: Delivery{Ordered: PerKey},
		Handle: OnTx(func(ctx context.Context, _ Tx, r topics.Record) error { return handle(ctx, r) }),
	}, ProcessorConfig{Store: s})
	require.NoError(t, err)
	d := newDrainer(RouterConfig{Store: s, LanePoll: time.Second, Log: slog.New(slog.DiscardHandler)}, []*Processor{p})
	require.NotNil(t, d)
	return d, s
}

// start runs d and returns what stops it and waits.
func (d *drainer) start(ctx context.Context) (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d.run(ctx, stopping)
	}()
	return func() {
		close(stopping)
		<-done
	}
}

func TestALaneIsDrainedAndClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		d, s := newLaneTest(t, 3, func(_ context.Context, r topics.Record) error {
			seen = append(seen, string(r.Value))
			return nil
		})
		stop := d.start(t.Context())
		synctest.Wait()
		assert.Equal(t, []string{"0", "1", "2"}, seen)
		assert.True(t, s.closed)
		stop()
	})
}

func TestALaneWaitsLongerAfterEachFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		d, s := newLaneTest(t, 1, func(context.Context, topics.Record) error {
			at = append(at, time.Since(begin))
			if len(at) < 4 {
				return Infrastructure(errors.New("no database"))
			}
			return nil
		})
		stop := d.start(t.Context())
		time.Sleep(10 * time.Second) // of the bubble
		stop()
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, at)
		assert.True(t, s.closed)
	})
}

func TestAStopLetsTheEventAtHandEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		d, s := newLaneTest(t, 3, func(ctx context.Context, _ topics.Record) error {
			select {
			case <-time.After(time.Minute):
				handled++
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		stop := d.start(t.Context())
		synctest.Wait()
		stop()
		assert.Equal(t, 1, handled)
		assert.GreaterOrEqual(t, s.kept, 5, "the lease was extended meanwhile")
		assert.Len(t, s.events, 2)
		assert.Equal(t, []error{nil}, s.left, "the lease is given back, without a fault")
	})
}

func TestALostLeaseEndsTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		d, s := newLaneTest(t, 1, func(ctx context.Context, _ topics.Record) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		s.keepErr = fmt.Errorf("keep: %w", ErrFenced)
		stop := d.start(t.Context())
		time.Sleep(laneLease) // of the bubble
		synctest.Wait()
		require.ErrorIs(t, cause, ErrFenced)
		assert.Empty(t, s.left, "it is somebody else's to give back")
		assert.Len(t, s.events, 1)
		stop()
	})
}

func TestTheEndOfTheContextGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d, s := newLaneTest(t, 1, func(ctx context.Context, _ topics.Record) error {
			<-ctx.Done()
			return ctx.Err()
		})
		stop := d.start(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		assert.Equal(t, []error{nil}, s.left)
		assert.Len(t, s.events, 1)
		stop()
	})
}

func TestNothingIsDrainedWithoutAStoreThatParks(t *testing.T) {
	t.Parallel()
	type plain struct{ Store }
	assert.Nil(t, newDrainer(RouterConfig{Store: plain{}}, nil))
	assert.Nil(t, newDrainer(RouterConfig{Store: &oneLane{}}, nil), "nor without consumers that could")
}
