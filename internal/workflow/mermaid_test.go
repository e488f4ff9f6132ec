package workflow

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMermaid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/lint/fine.json")
	require.NoError(t, err)
	d, err := Parse(text)
	require.NoError(t, err)
	golden(t, "testdata/fine.mmd", d.Mermaid())
}

func TestMermaidTakesAnyText(t *testing.T) {
	t.Parallel()
	d := &Definition{Steps: []Step{
		{ID: "a", Name: "say \"`hi`\" #1 <b>\n&", Type: Decision, ConditionalNextSteps: Branches{{`#a == "x" || b`, "b"}, {"c", "missing"}}},
		{ID: "b", Type: End},
	}}
	assert.Equal(t, `flowchart TD
    start(( )) --> s1
    s1{"say #quot;#96;hi#96;#quot; #35;1 #lt;b#gt; #amp;"}
    s2((("b")))
    s1 -->|"#35;a == #quot;x#quot; || b"| s2
`, d.Mermaid())
	assert.Equal(t, "flowchart TD\n", new(Definition).Mermaid())
}
