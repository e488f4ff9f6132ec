package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/internal/testenv/transcript"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is planted is what the data index reads, in both shapes.
func TestWhatIsPlanted(t *testing.T) {
	t.Parallel()
	b := &bench{options: options{tasks: 2, payload: 10}}
	p := b.planter("flows")
	records, err := p.instances()
	require.NoError(t, err)
	require.Len(t, records, 600, "a hundred whole instances")
	shapes, changes := map[lifecycle.Shape]int{}, map[lifecycle.Change]int{}
	ids := map[string]bool{}
	for _, r := range records {
		env, err := topics.DecodeRecord(r)
		require.NoError(t, err)
		ids[env.ID] = true
		e, skip, err := lifecycle.Read(env)
		require.NoError(t, err)
		require.Empty(t, skip)
		require.Equal(t, string(r.Key), e.InstanceID)
		shapes[e.Shape]++
		changes[e.Change]++
	}
	assert.Len(t, ids, 600)
	assert.Equal(t, map[lifecycle.Shape]int{lifecycle.Flat: 300, lifecycle.Nested: 300}, shapes)
	assert.Equal(t, map[lifecycle.Change]int{lifecycle.Started: 300, lifecycle.Completed: 300}, changes)
}

// The clients find what a stream leaves out or sends twice.
func TestTheCrowd(t *testing.T) {
	t.Parallel()
	event := func(sequence int) string {
		return fmt.Sprintf("id: x\nevent: e\ndata: {\"time\":%q,\"sequence\":\"%d\"}\n\n", time.Now().Format(time.RFC3339Nano), sequence)
	}
	for name, c := range map[string]struct {
		sent []int
		want string
	}{
		"all":   {[]int{2, 1, 3}, ""},
		"less":  {[]int{1, 2}, "2 of 3 events"},
		"twice": {[]int{1, 2, 2}, "came twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, ": ping\nid: x\n\n")
				for _, n := range c.sent {
					_, _ = io.WriteString(w, event(n))
				}
			}))
			defer server.Close()
			in, parent := io.Pipe()
			defer func() { _ = parent.Close() }()
			out := &transcript.Text{OnWrite: func(piece string) {
				if piece != "connected\n" {
					_ = parent.Close() // it has the report
				}
			}}
			err := crowd([]string{"-url", server.URL, "-clients", "3", "-each", "3"}, in, out)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			var r received
			_, report, _ := strings.Cut(out.String(), "connected\n")
			require.NoError(t, json.Unmarshal([]byte(report), &r))
			assert.Equal(t, 9, r.Count)
		})
	}
}
