package crowd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/client"
)

// The kinds of requests, as the label "kind" tells them.
const (
	plain  = "plain"  // nothing but the capacity
	paced  = "paced"  // so many of a user per second, the others wait
	door   = "door"   // so many of a user per second, the others are rejected
	team   = "team"   // so many of a team at once
	key    = "key"    // one of a key at a time, in order
	late   = "late"   // not before a while
	wide   = "wide"   // several slots
	flaky  = "flaky"  // fails at first
	fickle = "fickle" // cancelled soon after it was asked for
)

// ask is one execution to be.
type ask struct {
	kind    string
	request client.Request
	cancel  bool
}

// plan draws what the crowd asks for.
func plan(seed uint64, executions, users int) []ask {
	rng := rand.New(rand.NewPCG(seed, 1))
	asks := make([]ask, executions)
	for i := range asks {
		asks[i] = draw(rng, i, users)
	}
	return asks
}

// weights say how many of a hundred requests are of a kind.
func weights() []struct {
	kind string
	n    int
} {
	return []struct {
		kind string
		n    int
	}{{plain, 30}, {paced, 16}, {door, 10}, {team, 12}, {key, 12}, {late, 5}, {wide, 6}, {flaky, 4}, {fickle, 5}}
}

func drawKind(rng *rand.Rand) string {
	n := rng.IntN(100)
	for _, w := range weights() {
		if n -= w.n; n < 0 {
			return w.kind
		}
	}
	return plain
}

func draw(rng *rand.Rand, i, users int) ask {
	// A few of the users ask for most: a tenth of them for half.
	user := rng.IntN(users)
	if rng.IntN(2) == 0 {
		user = rng.IntN(max(1, users/10))
	}
	a := ask{kind: drawKind(rng)}
	r := client.Request{
		Executor: "function", User: fmt.Sprintf("user-%02d", user), IdempotencyKey: fmt.Sprintf("ask-%06d", i),
		Priority: 1 + rng.IntN(5), Labels: map[string]string{"kind": a.kind},
		Spec: function("sleep", map[string]any{"duration": fmt.Sprintf("%dms", rng.IntN(40))}),
	}
	if a.kind != key && rng.IntN(6) == 0 {
		r.ResourceClass = heavy
		r.Requirements = &client.Requirements{CPUMillis: int64(250 * (1 + rng.IntN(6)))}
	}
	switch a.kind {
	case team:
		// Long and uneven, so that there are always some of a team that wait while one
		// ends and others run.
		r.Labels["team"] = fmt.Sprintf("team-%d", rng.IntN(3))
		r.Spec = function("sleep", map[string]any{"duration": fmt.Sprintf("%dms", 50+rng.IntN(200))})
	case key:
		r.ConcurrencyKey = fmt.Sprintf("key-%d", rng.IntN(10))
		r.Spec = function("noop", nil)
		if rng.IntN(5) == 0 {
			r.Spec = function("fail", map[string]any{"message": "now and then", "retryable": true})
			r.Retry = &client.Retry{MaxAttempts: 2, Backoff: "50ms"}
		}
	case late:
		at := time.Now().Add(time.Duration(1+rng.IntN(8)) * time.Second)
		r.NotBefore = &at
	case wide:
		if r.Requirements == nil {
			r.Requirements = &client.Requirements{}
		}
		r.Requirements.Slots = 2 + rng.IntN(4)
	case flaky:
		r.Spec = function("fail", map[string]any{"message": "as agreed", "retryable": true})
		r.Retry = &client.Retry{MaxAttempts: 3, Backoff: "100ms", Jitter: 0.5}
	case fickle:
		a.cancel = true
		r.Spec = function("sleep", map[string]any{"duration": "2s"})
	}
	a.request = r
	return a
}

func function(name string, args any) json.RawMessage {
	spec := client.FunctionSpec{Name: name}
	if args != nil {
		spec.Args, _ = json.Marshal(args) // strings and numbers can be encoded
	}
	text, _ := json.Marshal(spec)
	return text
}
