package hooks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/hooks"
)

// flood sends requests with these bodies while the first of them is being made, and lets
// them all go on once they wait.
func (b *bench) flood(id string, bodies ...string) []*httptest.ResponseRecorder {
	b.t.Helper()
	b.gate, b.entered = make(chan struct{}), make(chan struct{}, 1000)
	answers := make([]chan *httptest.ResponseRecorder, len(bodies))
	for i, body := range bodies {
		answers[i] = make(chan *httptest.ResponseRecorder, 1)
		waiting := b.Waiting(id)
		go func() { answers[i] <- b.post(id, body) }()
		if i == 0 {
			<-b.entered
		} else { // one after the other: their order is part of the test
			require.Eventually(b.t, func() bool { return b.Waiting(id) == waiting+1 }, patience, time.Millisecond)
		}
	}
	close(b.gate)
	all := make([]*httptest.ResponseRecorder, len(bodies))
	for i := range answers {
		all[i] = <-answers[i]
	}
	return all
}

func TestRequestsGatherWhileOthersAreMade(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	var bodies []string
	for i := range 121 {
		bodies = append(bodies, fmt.Sprintf(`{"n":%d}`, i))
	}
	for i, w := range b.flood("orders", bodies...) {
		assert.Equal(t, fmt.Sprintf("execution-%d", i+1), accepted(t, w, http.StatusAccepted).ID, "in the order of arrival")
	}
	var sizes []int
	for _, call := range b.received() {
		sizes = append(sizes, len(call))
	}
	assert.Equal(t, []int{1, 100, 20}, sizes)
}

func TestOneThatIsBlockedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	all := b.flood("orders", `{}`, `{"n":1}`, `{"block":1}`, `{"n":3}`, `{"block":2}`, `{"refuse":"mapping"}`, `{"n":6}`)
	var codes []int
	for _, w := range all {
		codes = append(codes, w.Code)
	}
	assert.Equal(t, []int{202, 202, 503, 202, 503, 422, 202}, codes)
}

func TestWhileTheDatabaseIsAwayNothingIsAccepted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	var codes []int
	for _, w := range b.flood("orders", `{}`, `{"n":1}`, `{"away":1}`, `{"n":3}`) {
		codes = append(codes, w.Code)
	}
	assert.Equal(t, []int{202, 202, 500, 500}, codes, "the API tells 503 from 500 by the error")
	accepted(t, b.post("orders", `{}`), http.StatusAccepted)
}

func TestAPanicIsOfOneHookAndPasses(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	refused(t, b.post("orders", `{"panic":1}`), http.StatusInternalServerError, "internal")
	assert.Contains(t, b.logs.String(), "a bug")
	accepted(t, b.post("orders", `{}`), http.StatusAccepted)
}

func TestAFloodLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *hooks.Config) { c.MaxWaiting = 3 })
	b.hook("flooded", open())
	b.hook("calm", open())
	b.gate, b.entered, b.only = make(chan struct{}), make(chan struct{}, 1000), "flooded"
	answers := make(chan *httptest.ResponseRecorder, 4)
	go func() { answers <- b.post("flooded", `{}`) }()
	<-b.entered
	for range 3 {
		go func() { answers <- b.post("flooded", `{}`) }()
	}
	require.Eventually(t, func() bool { return b.Waiting("flooded") == 3 }, patience, time.Millisecond)
	refused(t, b.post("flooded", `{}`), http.StatusServiceUnavailable, "overloaded")
	accepted(t, b.post("calm", `{}`), http.StatusAccepted)
	close(b.gate)
	for range 4 {
		accepted(t, <-answers, http.StatusAccepted)
	}
}

func TestACallerThatLeavesWhileItWaitsIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	b.gate, b.entered = make(chan struct{}), make(chan struct{}, 1000)
	answers := make(chan *httptest.ResponseRecorder, 3)
	go func() { answers <- b.post("orders", `{"n":1}`) }()
	<-b.entered
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan *httptest.ResponseRecorder, 1)
	go func() { gone <- b.serve(b.request("orders", `{"n":2}`).WithContext(ctx)) }()
	require.Eventually(t, func() bool { return b.Waiting("orders") == 1 }, patience, time.Millisecond)
	leave()
	assert.NotEqual(t, http.StatusAccepted, (<-gone).Code)
	go func() { answers <- b.post("orders", `{"n":3}`) }()
	require.Eventually(t, func() bool { return b.Waiting("orders") == 2 }, patience, time.Millisecond)
	close(b.gate)
	for range 2 {
		accepted(t, <-answers, http.StatusAccepted)
	}
	calls := b.received()
	require.Len(t, calls, 2)
	require.Len(t, calls[1], 1)
	assert.Equal(t, `{"n":3}`, string(calls[1][0].Body))
}

func TestAChangeSplitsWhatHasGathered(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	b.gate, b.entered = make(chan struct{}), make(chan struct{}, 1000)
	answers := make(chan *httptest.ResponseRecorder, 3)
	go func() { answers <- b.post("orders", `{}`) }()
	<-b.entered
	for i := range 2 {
		go func() { answers <- b.post("orders", `{}`) }()
		require.Eventually(t, func() bool { return b.Waiting("orders") == i+1 }, patience, time.Millisecond)
		b.hook("orders", open())
	}
	close(b.gate)
	for range 3 {
		accepted(t, <-answers, http.StatusAccepted)
	}
	assert.Len(t, b.received(), 3, "a message is mapped by the revision that took it")
}

func TestClosingWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	b.gate, b.entered = make(chan struct{}), make(chan struct{}, 10)
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- b.post("orders", `{}`) }()
	<-b.entered
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Close(ended), context.Canceled)
	refused(t, <-answers, http.StatusServiceUnavailable, "shutting_down")
	refused(t, b.post("orders", `{}`), http.StatusServiceUnavailable, "shutting_down")
	require.NoError(t, b.Close(t.Context()))
}

func TestADeletedHookIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for i := range 5 {
		id := fmt.Sprintf("hook-%d", i)
		b.hook(id, open())
		accepted(t, b.post(id, `{}`), http.StatusAccepted)
		b.mu.Lock()
		delete(b.known, id)
		b.mu.Unlock()
	}
	assert.Equal(t, 1, b.Kept())
}
