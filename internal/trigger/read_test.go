package trigger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
)

const twoDocuments = `# what the shop sends
id: orders
kafka:
  topics: [orders, "12:30"]
  rate_limit_per_second: 12.50
target:
  execution:
    executor: function
    spec: {name: invoice, args: {order: "${body}", n: 9007199254740993, hex: 0x10, yes: true, at: 2026-01-02}}
    concurrency_key: ${key}
---
---
id: nightly
schedule:
  cron: "*/5 * * * *"
target: &target
  workflow: {id: w}
`

func TestYAMLIsRead(t *testing.T) {
	t.Parallel()
	documents, faults := trigger.ReadDocuments([]byte("\xef\xbb\xbf" + twoDocuments))
	require.Empty(t, faults)
	require.Len(t, documents, 2)
	assert.Equal(t, []string{"orders", "12:30"}, documents[0].Definition.Kafka.Topics)
	assert.InDelta(t, 12.5, documents[0].Definition.Kafka.RateLimitPerSecond, 0)
	assert.Equal(t, `{"name":"invoice","args":{"order":"${body}","n":9007199254740993,"hex":16,"yes":true,"at":"2026-01-02"}}`, string(documents[0].Definition.Target.Execution.Spec))
	assert.Equal(t, "nightly", documents[1].Definition.ID)
	assert.Equal(t, 13, documents[1].Line)
}

func TestJSONIsReadInEachForm(t *testing.T) {
	t.Parallel()
	one := `{"id": "a", "webhook": {"auth": {"none": true}}, "target": {"workflow": {"id": "w"}}}`
	for _, text := range []string{one, "[" + one + "]", `{"triggers": [` + one + `]}`, "triggers:\n- " + one, "- " + one} {
		documents, faults := trigger.ReadDocuments([]byte(text))
		require.Empty(t, faults, text)
		require.Len(t, documents, 1, text)
		assert.Equal(t, "a", documents[0].Definition.ID)
		assert.JSONEq(t, one, string(documents[0].JSON))
	}
}

// TestFaultsHaveLines holds that faults are found in the file, in either language.
func TestFaultsHaveLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"id: a\nkafka:\n  topic: x\n  topics: y\n":             "3:3 /kafka/topic unknown_field, 4:3 /kafka/topics wrong_type",
		"{\"id\": \"a\",\n \"kafka\": {\n  \"topic\": \"x\"}}": "3:3 /kafka/topic unknown_field",
		"{\"triggers\": [{\"id\": \"a\"},\n {\"id\": 7}]}":     "2:3 /id wrong_type",
		"id: a\nid: b\n":                        "1:1 /id duplicate_field",
		"id: a\n---\n# nothing\n---\nid: [b]\n": "5:1 /id wrong_type",
		"schedule:\n  cron: */5 * * * *\n":      "2:1  syntax",
		"id: a: b\n":                            "1:1  syntax",
		"{\"id\": \"a\"":                        "1:10  syntax",
		"a: &a [*a]\n":                          "1:8 /a/0/0 invalid",
		"a: &a {id: x}\nb:\n  <<: *a\n":         "3:3 /b invalid",
		"id: !!binary aGk=\n":                   "1:5 /id invalid",
		"members: .inf\n":                       "1:10 /members invalid",
		"":                                      "1:1  required",
		"# nothing\n":                           "1:1  required",
		"text":                                  "1:1  wrong_type",
		"id: " + strings.Repeat("a", trigger.MaxDocumentBytes) + "\n": "1:1  too_large",
	} {
		documents, faults := trigger.ReadDocuments([]byte(text))
		for _, d := range documents {
			faults = append(faults, d.Faults...)
		}
		var found []string
		for _, f := range faults {
			found = append(found, fmt.Sprintf("%d:%d %s %s", f.Line, f.Column, f.Pointer, f.Code))
		}
		assert.Equal(t, want, strings.Join(found, ", "), "%.60s\n%v", text, faults)
	}
	_, faults := trigger.ReadDocuments([]byte("schedule:\n  cron: */5 * * * *\n"))
	assert.Contains(t, faults[0].Hint, `"*/5 * * * *"`)
}

// TestAliasesCannotFillTheMemory reads the billion laughs.
func TestAliasesCannotFillTheMemory(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&text, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	_, faults := trigger.ReadDocuments([]byte(text.String()))
	require.NotEmpty(t, faults)
	assert.Contains(t, []string{trigger.CodeTooLarge, trigger.CodeSyntax}, faults[0].Code)
}

// TestAnExportCanBeApplied holds that nothing is lost on the way out and in again.
func TestAnExportCanBeApplied(t *testing.T) {
	t.Parallel()
	documents, faults := trigger.ReadDocuments([]byte(twoDocuments))
	require.Empty(t, faults)
	for _, d := range documents {
		text, err := d.Definition.Export()
		require.NoError(t, err)
		again, faults := trigger.Decode(text)
		require.Empty(t, faults)
		assert.True(t, *again.Enabled)
		again.Enabled = nil
		assert.Equal(t, d.Definition, again)
		twice, err := again.Export()
		require.NoError(t, err)
		assert.Equal(t, string(text), string(twice))
	}
}

func TestSettingsSayWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	var d trigger.Definition
	require.NoError(t, json.Unmarshal([]byte(`{"id":"a","kafka":{"topics":["t"],"prefetch_count":50},"alert_after":"2h",`+target+`}`), &d))
	settings := func(defaults trigger.Defaults) map[string]string {
		compiled, faults := trigger.Compile(trigger.Stored{Definition: d}, defaults)
		require.NoError(t, trigger.Refused(faults))
		found := map[string]string{}
		for _, s := range compiled.Settings() {
			found[s.Name] = fmt.Sprintf("%v %s", s.Value, s.Source)
		}
		return found
	}
	assert.Equal(t, map[string]string{
		"kafka.brokers": "[kafka:9092] installation", "kafka.group": "millrace-trigger-a default", "kafka.from": "earliest default",
		"kafka.prefetch_count": "50 definition", "kafka.prefetch_bytes": "102400 default", "kafka.max_bytes_per_fetch": "1048576 default",
		"kafka.rate_limit_per_second": "0 default", "kafka.batch": "100 default",
		"limit_action": "queue default", "on_poison": "dead_letter default", "members": "1 default", "alert_after": "2h0m0s definition",
	}, settings(installed()))
	d.AlertAfter = 0
	changed := installed()
	changed.AlertAfter = 1
	assert.Equal(t, "1ns installation", settings(changed)["alert_after"])
	assert.Equal(t, "1h0m0s default", settings(installed())["alert_after"])
}
