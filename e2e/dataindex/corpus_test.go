package dataindex_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/e2e/dataindex"
)

// The recordings hold what they are there for.
func TestRecordings(t *testing.T) {
	t.Parallel()
	for _, encoding := range dataindex.Encodings() {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			r := dataindex.Recorded(encoding)
			statuses := map[string]int{}
			var again int
			for _, i := range r.Instances {
				statuses[i.Status]++
				for _, task := range i.Tasks {
					again += task.Runs - 1
				}
			}
			assert.Equal(t, map[string]int{"COMPLETED": 7, "FAULTED": 2, "CANCELLED": 1, "SUSPENDED": 1, "WAITING": 1}, statuses)
			assert.Positive(t, again, "loops and retries")

			types := map[string]bool{}
			for _, record := range r.Records {
				types[eventType(t, record)] = true
				assert.Equal(t, encoding == dataindex.Bare, record.Key == nil)
			}
			for _, name := range []string{
				"workflow.started", "workflow.completed", "workflow.faulted", "workflow.suspended", "workflow.resumed",
				"workflow.cancelled", "workflow.status-changed", "task.started", "task.completed", "task.faulted", "task.cancelled",
			} {
				assert.True(t, types["io.serverlessworkflow."+name+".v1"], name)
			}
			assert.Contains(t, everything(r), `\"retriedAt\"`, "the SDK names a retried task's event task.started")
		})
	}
}

func eventType(t *testing.T, r dataindex.Record) string {
	t.Helper()
	for _, h := range r.Headers {
		if h[0] == "ce_type" {
			return h[1]
		}
	}
	var envelope struct {
		Type string `json:"type"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.Value), &envelope))
	return envelope.Type
}

func everything(r dataindex.Recording) string {
	var all strings.Builder
	for _, record := range r.Records {
		line, _ := json.Marshal(record)
		all.Write(line)
	}
	return all.String()
}
