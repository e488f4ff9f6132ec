package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/executor/pods"
)

func podAt(name, uid string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "work", Name: name, UID: types.UID(uid), ResourceVersion: strconv.Itoa(version),
		Labels:      map[string]string{ManagedByLabel: ManagedBy, FirstLabel: "1"},
		Annotations: map[string]string{ExecutionAnnotation: name},
	}}
}

func keyFor(name string) key { return key{Namespace: "work", Name: name} }

func quiet(*corev1.Pod) {}

func TestABoardKeepsTheLatestState(t *testing.T) {
	t.Parallel()
	var told []string
	b := newBoard(
		func(p *corev1.Pod) { told = append(told, string(p.UID)+"@"+p.ResourceVersion) },
		func(p *corev1.Pod) { told = append(told, string(p.UID)+" gone") })
	b.show(podAt("other", "x", 1))
	require.Zero(t, b.size(), "what nobody asked for")

	news, leave := b.watch(keyFor("one"))
	b.show(podAt("one", "a", 3))
	<-news
	b.show(podAt("one", "a", 2)) // an answer that was slow
	assert.Empty(t, news)
	assert.Equal(t, "3", b.look(keyFor("one")).pod.ResourceVersion)
	b.show(podAt("one", "b", 6)) // the watch has missed the end of the first
	<-news
	b.remove(podAt("one", "a", 4))
	assert.False(t, b.look(keyFor("one")).gone, "the end of a pod that is over")
	b.remove(podAt("one", "b", 8))
	<-news
	assert.True(t, b.look(keyFor("one")).gone)
	b.show(podAt("one", "b", 7))
	assert.True(t, b.look(keyFor("one")).gone, "the dead stay dead")
	assert.Equal(t, []string{"a@3", "a gone", "b@6", "b gone"}, told)
	leave()
	assert.Zero(t, b.size())
}

func TestABoardKeepsWhatWasLeftUntilItIsGone(t *testing.T) {
	t.Parallel()
	b := newBoard(quiet, quiet)
	_, leave := b.watch(keyFor("one"))
	b.show(podAt("one", "a", 3))
	leave()
	assert.Equal(t, 1, b.size())
	b.remove(podAt("one", "a", 4))
	assert.Zero(t, b.size())
}

func TestAListTellsWhatIsGone(t *testing.T) {
	t.Parallel()
	b := newBoard(quiet, quiet)
	for i, name := range []string{"there", "gone", "young"} {
		_, leave := b.watch(keyFor(name))
		defer leave()
		b.show(podAt(name, name, 10+20*i)) // 10, 30, 50
	}
	b.replace([]*corev1.Pod{podAt("there", "there", 12)}, "40")
	assert.Equal(t, "12", b.look(keyFor("there")).pod.ResourceVersion)
	assert.True(t, b.look(keyFor("gone")).gone)
	assert.False(t, b.look(keyFor("young")).gone, "it was made after the list")
}

// Whatever comes in whatever order, the board ends with the last state, and has told of one end
// for each pod.
func TestABoardTakesAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ends := map[types.UID]int{}
		b := newBoard(quiet, func(p *corev1.Pod) { ends[p.UID]++ })
		_, leave := b.watch(keyFor("one"))
		defer leave()
		type step struct {
			p    *corev1.Pod
			last bool
		}
		var steps []step
		for version := range rapid.IntRange(1, 8).Draw(t, "states") {
			steps = append(steps, step{podAt("one", "a", version+1), false})
		}
		end := podAt("one", "a", 100)
		steps = append(steps, step{end, true}, step{end, true})
		for _, s := range rapid.Permutation(steps).Draw(t, "order") {
			if s.last {
				b.remove(s.p)
			} else {
				b.show(s.p)
			}
		}
		assert.True(t, b.look(keyFor("one")).gone)
		assert.Equal(t, map[types.UID]int{"a": 1}, ends)
	})
}

func TestACensusKnowsWhoIsAlone(t *testing.T) {
	t.Parallel()
	c := newCensus()
	assert.False(t, c.alone("x", 1), "nobody has counted")
	one := podAt("x", "a", 1)
	c.replace([]*corev1.Pod{one, podAt("y", "b", 1)})
	assert.True(t, c.alone("x", 1))
	assert.True(t, c.alone("z", 1))
	assert.False(t, c.alone("x", 2), "there is another run's")
	c.gone(one)
	assert.True(t, c.alone("x", 2))
	c.seen(one)
	assert.False(t, c.alone("x", 3))
}

// ledgerFunc is a pods.Ledger that records.
type ledgerFunc func(facts []pods.Fact) error

func (f ledgerFunc) Record(_ context.Context, facts []pods.Fact) error              { return f(facts) }
func (f ledgerFunc) Wanted(context.Context, []pods.Run) ([]bool, error)             { return nil, nil }
func (f ledgerFunc) Standing(context.Context, string, int) ([]pods.Standing, error) { return nil, nil }
func (f ledgerFunc) Forgo(context.Context, pods.Pod, *pods.Verdict) error           { return nil }
func (f ledgerFunc) Worked(context.Context, pods.Run) (pods.Last, bool, error) {
	return pods.Last{}, false, nil
}

func TestFactsAreRecordedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		calls int
		kept  []string
	)
	r := newRecorder(ledgerFunc(func(facts []pods.Fact) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls < 3 {
			return errors.New("not now")
		}
		for _, f := range facts {
			kept = append(kept, f.ExecutionID+" "+string(f.Phase))
		}
		return nil
	}), slog.New(slog.DiscardHandler), func() {})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	var want []string
	for i := range 3 * factsAtOnce {
		p := podAt(fmt.Sprintf("x%d", i), fmt.Sprint(i), 1)
		r.seen(p)
		r.seen(p)
		want = append(want, p.Name+" created")
	}
	r.flush(t.Context())
	last := podAt("x0", "0", 9)
	last.Spec.NodeName, last.Status.Phase = "n", corev1.PodSucceeded
	cancel()
	r.gone(last) // noted while the worker stops, maybe after its last look
	<-done
	r.drain(t.Context())
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, append(slices.Clone(want), "x0 scheduled", "x0 succeeded", "x0 deleted"), kept)
	assert.Zero(t, r.pending())
}

func TestAFlushEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRecorder(ledgerFunc(func([]pods.Fact) error { return errors.New("never") }), slog.New(slog.DiscardHandler), func() {})
	r.seen(podAt("x", "a", 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r.flush(ctx)
	assert.Equal(t, 1, r.pending())
}
