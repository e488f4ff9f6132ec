package docs_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// TestExamplesOfTriggersAreValid compiles each definition that the page has written to a
// file, and each part of one with a target beside it.
func TestExamplesOfTriggersAreValid(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/triggers.md")
	var texts []string
	for _, m := range regexp.MustCompile(`(?s)\ncat > \S+\.yaml <<'END'\n(.*?)\nEND\n`).FindAllStringSubmatch(page, -1) {
		texts = append(texts, m[1])
	}
	for _, m := range regexp.MustCompile("(?s)\n```yaml\n((?:webhook|kafka|schedule):\n.*?)\n```\n").FindAllStringSubmatch(page, -1) {
		texts = append(texts, m[1]+"\nid: part\ntarget: {workflow: {id: w}}")
	}
	require.GreaterOrEqual(t, len(texts), 3)
	for _, text := range texts {
		documents, faults := trigger.ReadDocuments([]byte(text))
		require.NoError(t, trigger.Refused(faults), text)
		for _, d := range documents {
			_, faults := trigger.Compile(trigger.Stored{UID: "u", Revision: 1, Definition: d.Definition}, trigger.Defaults{
				Brokers: []string{"localhost:9092"}, Secrets: trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_"},
			})
			assert.NoError(t, trigger.Refused(faults), text)
		}
	}
}

// TestAnswersOfWebhooksAreAsDescribed holds the table of answers against the problems.
func TestAnswersOfWebhooksAreAsDescribed(t *testing.T) {
	t.Parallel()
	known := map[string]int{}
	for _, k := range problem.Kinds() {
		known[k.Code] = k.Status
	}
	_, table, found := strings.Cut(read(t, "docs/triggers.md"), "### What the answers mean\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n### ")
	rows := regexp.MustCompile("(?m)^\\| (\\d{3}) \\| ((?:`\\w+`(?:, )?)+) \\|").FindAllStringSubmatch(table, -1)
	require.GreaterOrEqual(t, len(rows), 9)
	for _, row := range rows {
		for _, code := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			assert.Equal(t, row[1], strconv.Itoa(known[code[1]]), code[1])
		}
	}
}
