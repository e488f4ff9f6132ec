package execution_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
)

var update = flag.Bool("update", false, "write the generated documentation anew")

const diagramFile = "../../docs/state-machine.md"

// TestDiagram keeps the documented state machine equal to the one in the code.
func TestDiagram(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# The states of an execution\n\n")
	b.WriteString("Generated from the transition table in `internal/execution/state.go`;\n")
	b.WriteString("`go test ./internal/execution -run TestDiagram -update` writes it anew.\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, tr := range execution.Transitions() {
		from := string(tr.From)
		if from == "" {
			from = "[*]"
		}
		event := strings.TrimSuffix(strings.TrimPrefix(tr.Event, "millrace.execution."), ".v1")
		fmt.Fprintf(&b, "    %s --> %s: %s\n", from, tr.To, event)
	}
	for _, s := range execution.States() {
		if s.Terminal() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n\n")
	b.WriteString("`reprioritized`, `output`, `cancel_requested` and `lease_expired` are facts that change no state. A\n")
	b.WriteString("`lease_expired` is followed, in the same transaction, by the event that does.\n")
	b.WriteString("Why an execution took one way and not another is in the events: [decisions.md](decisions.md).\n")
	if *update {
		require.NoError(t, os.WriteFile(diagramFile, []byte(b.String()), 0o644))
	}
	committed, err := os.ReadFile(diagramFile)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(committed), "run this test with -update")
}

// TestEveryEventLeadsToOneState holds the promise of StateAfter: the state can be
// told from the event alone.
func TestEveryEventLeadsToOneState(t *testing.T) {
	t.Parallel()
	to := map[string]execution.State{}
	for _, tr := range execution.Transitions() {
		if earlier, seen := to[tr.Event]; seen {
			assert.Equal(t, earlier, tr.To, tr.Event)
		}
		to[tr.Event] = tr.To
		assert.False(t, tr.From.Terminal(), "%s leaves %s", tr.Event, tr.From)
	}
}
