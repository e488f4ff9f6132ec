package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
)

type unheard struct{}

func (unheard) Wake(string) {}

// keyed is a trigger whose executions of one customer run one after the other, each up to
// three times. Each attempt writes a line; of some the first attempt fails.
func keyed(t *testing.T, trace string) *trigger.Compiled {
	t.Helper()
	script := `echo "$1 $2 $MILLRACE_ATTEMPT" >>"$3"; [ "$4" = true ] && [ "$MILLRACE_ATTEMPT" = 1 ] && exit 1; exit 0`
	target, err := json.Marshal(map[string]any{
		"executor":        "process",
		"spec":            map[string]any{"command": []string{"sh", "-c", script, "sh", "${body.customer}", "${string(body.n)}", trace, "${string(body.bad)}"}},
		"concurrency_key": "customer-${body.customer}",
		"retry":           map[string]any{"max_attempts": 3, "backoff": "50ms"},
	})
	require.NoError(t, err)
	var d trigger.Definition
	require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"id": "orders", "tenant": "default", "user": "ann", "kafka": {"topics": ["orders"]}, "target": {"execution": %s}}`, target), &d))
	c, faults := trigger.Compile(trigger.Stored{Definition: d, UID: "9f0c", Revision: 1}, trigger.Defaults{Brokers: []string{"kafka:9092"}})
	require.NoError(t, trigger.Refused(faults))
	return c
}

// The order of a partition is the order of creation; with a concurrency key it is the order in
// which executions run, retries included, over two coordinators of which one goes, two
// workers, and messages that come again.
func TestThePartitionsOrderIsThatOfExecutionsWithAKey(t *testing.T) {
	t.Parallel()
	thePartitionsOrder(t, installEmbedded(t, quickLeases()...), (*process).stop)
}

// The same, and the coordinator that goes is killed. A group that waits for a dead member is
// nothing that the embedded broker, which has one process, is good at.
func TestThePartitionsOrderOutlivesACoordinator(t *testing.T) {
	thePartitionsOrder(t, installReal(t, quickLeases()...), (*process).sigkill)
}

func thePartitionsOrder(t *testing.T, in *installation, end func(*process)) {
	t.Helper()
	victim, front := in.serve("front-1", frontRoles), in.serve("front-2", frontRoles)
	in.worker("worker-1", "8")
	in.worker("worker-2", "8")
	for _, p := range in.alive() {
		p.ready()
	}
	trace := filepath.Join(in.dir, "order")
	require.NoError(t, os.WriteFile(trace, nil, 0o666))
	require.NoError(t, os.Chmod(trace, 0o666))
	target := keyed(t, trace)
	creator := ingest.New(ingest.Config{Executions: store.New(in.db, unheard{}, execution.DefaultPolicy())})

	const many, customers = 60, 3
	messages := make([]ingest.Message, many)
	for n := range messages {
		messages[n] = ingest.Message{
			Body:  fmt.Appendf(nil, `{"customer": "c%d", "n": %d, "bad": %t}`, n%customers, n/customers, n%4 == 1),
			Place: &ingest.Place{Cluster: "c", Topic: "orders", TopicID: [16]byte{1}, Offset: int64(n)},
		}
	}
	ended := func() int { return in.count(`SELECT count(*) FROM executions WHERE state = 'COMPLETED'`) }
	for at := 0; at < many; at += 7 {
		if at >= many/2 && victim.running() {
			await(t, stuckAfter, "some have ended", func() bool { return ended() > 0 })
			end(victim)
		}
		// Each batch begins with what the one before it ended with.
		_, err := creator.Create(t.Context(), target, messages[max(at-3, 0):min(at+7, many)])
		require.NoError(t, err)
	}
	await(t, 2*stuckAfter, "all have ended", func() bool { return ended() == many })
	assert.Equal(t, many, in.count(`SELECT count(*) FROM executions`))

	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	order := make(map[string][]string, customers)
	for line := range strings.Lines(string(text)) {
		customer, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		order[customer] = append(order[customer], rest)
	}
	for customer := range customers {
		var want []string
		for n := range many / customers {
			want = append(want, fmt.Sprint(n, " 1"))
			if (n*customers+customer)%4 == 1 {
				want = append(want, fmt.Sprint(n, " 2"))
			}
		}
		assert.Equal(t, want, slices.Clip(order[fmt.Sprint("c", customer)]))
	}
	assert.True(t, front.running())
	in.stopAll()
}
