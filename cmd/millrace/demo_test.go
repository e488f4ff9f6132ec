package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv/transcript"
)

// demoConsole returns a console for parts of the demonstration, and where the fake
// API is.
func demoConsole(t *testing.T) (*console, *cli, configs.Config, app.Running) {
	c := newConsole(t)
	c.out, c.err = &transcript.Text{}, &transcript.Text{}
	c.surroundings.out, c.surroundings.err = c.out, c.err
	config := configs.Default()
	config.DataDir = t.TempDir()
	config.API.Auth.Token = secret.New(canary)
	return c, &cli{surroundings: c.surroundings}, config, app.Running{URL: c.api.url, DataDir: config.DataDir}
}

func TestWorkloadIsFitToBeSeen(t *testing.T) {
	t.Parallel()
	for _, python := range []string{"", "/usr/bin/python3"} {
		acts := workload(python)
		states := make(map[string]int)
		for _, a := range acts {
			states[a.state]++
			assert.LessOrEqual(t, len(a.title), 31, "%s: the table has to fit a terminal", a.title)
			assert.Empty(t, a.request.IdempotencyKey, "every demonstration runs anew")
			assert.True(t, json.Valid(a.request.Spec), a.title)
			assert.NotEmpty(t, a.request.Limits.Run, a.title)
		}
		assert.GreaterOrEqual(t, len(acts), 12)
		assert.LessOrEqual(t, len(acts), 20)
		for _, state := range []string{client.Completed, client.Failed, client.TimedOut, client.Cancelled} {
			assert.Positive(t, states[state], state)
		}
	}
}

func TestDemonstrationReportsWhatGoesWrong(t *testing.T) {
	t.Parallel()
	c, cli, config, r := demoConsole(t)
	c.api.mux.HandleFunc("POST /v1/executions", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, 503, "unavailable", "The database does not answer")
	})
	cli.demonstrate(t.Context(), config, r, time.Now())
	assert.Contains(t, c.err.String(), `demonstration: submit "say hello": The database does not answer`)
	assert.Contains(t, c.out.String(), "Stop with Ctrl-C", "the instance stays up, and its user is told what to try")

	r.URL = ""
	cli.demonstrate(t.Context(), config, r, time.Now())
	assert.Contains(t, c.err.String(), "does not play the role api")
}

func TestDemonstrationIsInterrupted(t *testing.T) {
	t.Parallel()
	c, cli, config, r := demoConsole(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.api.answers("POST /v1/executions", 202, `{"id":"`+id1+`","state":"REQUESTED"}`)
	c.api.mux.HandleFunc("GET /v1/executions/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	cli.demonstrate(ctx, config, r, time.Now())
	assert.Contains(t, c.err.String(), "The demonstration was interrupted.")
	assert.NotContains(t, c.out.String(), "STATE")
}

func TestTheReportOfADemonstration(t *testing.T) {
	t.Parallel()
	c, cli, _, _ := demoConsole(t)
	start := noon()
	done := start.Add(40 * time.Millisecond)
	good := performance{
		act:       shell("go well", "true"),
		execution: client.Execution{ID: id1, State: client.Completed, Attempt: 1, StartedAt: &start, FinishedAt: &done},
		output:    strings.Repeat("long ", 40),
	}
	bad := performance{
		act:       failing(shell("should fail", "false")),
		execution: client.Execution{ID: id2, State: client.Completed, Attempt: 1}, output: "it did not",
	}
	lost := performance{act: shell("get lost", "true"), execution: client.Execution{State: client.Queued}, err: fmt.Errorf("no answer")}
	s := show{performances: []performance{good, bad, lost}, began: start, first: start.Add(25 * time.Millisecond), ended: start.Add(time.Second)}
	cli.width = 80
	require.NoError(t, cli.reportShow(s, start.Add(-time.Second)))
	text := c.out.String()
	assert.Contains(t, text, "3 submitted: 1 QUEUED, 2 COMPLETED. 2 did not end as intended!")
	assert.Contains(t, text, "First result 25ms after its submission and 1s after the start; all after 1s.")
	assert.Contains(t, text, "unexpected (FAILED at attempt 1")
	assert.Contains(t, text, "unexpected: no answer")
	first := strings.Split(text, "\n")[1]
	assert.LessOrEqual(t, len([]rune(first)), 80, first)
	assert.True(t, strings.HasSuffix(first, "…"), first)
}

func TestCommandsAreWrittenAsTheyHaveToBeTyped(t *testing.T) {
	t.Parallel()
	c := &cli{surroundings: surroundings{environ: []string{"HOME=/home/ada"}, program: "bin/millrace"}}
	usual, err := configs.DefaultDataDir(1000, c.getenv)
	require.NoError(t, err)
	assert.Equal(t, "/home/ada/.local/share/millrace", usual)
	assert.Equal(t, "bin/millrace --data-dir /data/x stop", c.commandOn("/data/x", "stop"))
	assert.Equal(t, `bin/millrace --data-dir '/it'\''s mine' stop`, c.commandOn("/it's mine", "stop"))
	c.program = ""
	assert.Equal(t, "millrace --data-dir /data/x stop", c.commandOn("/data/x", "stop"))
}
