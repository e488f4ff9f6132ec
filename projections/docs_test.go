package projections_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/read-models.md")

// TestTheDocumentationIsTheDeclaration compares the tables in docs/read-models.md with
// what the projections declare. Run with -update to write them anew.
func TestTheDocumentationIsTheDeclaration(t *testing.T) {
	t.Parallel()
	const page, begin = "../docs/read-models.md", "<!-- From here on the page is generated: go test ./projections -run Documentation -update -->\n"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	written, _, found := strings.Cut(string(text), begin)
	require.True(t, found)
	want := written + begin
	for _, p := range projections.All() {
		want += "\n" + strings.TrimSpace(p.Markdown()) + "\n"
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(text))
}

// The example of the page works: its migration and its declaration agree.
func TestTheExampleOfThePageWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/read-models.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "```sql\n")
	ddl, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	pool := database(t)
	_, err = pool.Exec(t.Context(), ddl)
	require.NoError(t, err)

	later := envelopes(t, execution.New("e2", request(nil), start.AddDate(0, 0, 1)))
	rows := projectionstest.Converge(t, pool, Users(), append(records(history(t, "e1")...), records(later...)...))["user_views"]
	require.Len(t, rows, 1)
	assert.Equal(t, []any{"ada", "e2", "2026-01-02T03:04:05+00:00"}, []any{rows[0]["user_name"], rows[0]["last_execution"], rows[0]["since"]})
}
