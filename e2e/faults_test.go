package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// failing returns the causes of the checks that fail, by name, as readyz tells.
func (p *process) failing() map[string]string {
	p.t.Helper()
	_, body := p.get("/readyz?verbose")
	var report struct {
		Ready  bool
		Checks []struct {
			Name, Cause string
			OK          bool
		}
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		return map[string]string{"readyz": body}
	}
	causes := map[string]string{}
	for _, c := range report.Checks {
		if !c.OK {
			causes[c.Name] = c.Cause
		}
	}
	assert.Equal(p.t, len(causes) == 0, report.Ready)
	return causes
}

func (in *installation) awaitReady() {
	in.t.Helper()
	for _, p := range in.alive() {
		await(in.t, startWithin, p.name+" is ready again", func() bool { return len(p.failing()) == 0 })
	}
}

// Kafka and then PostgreSQL go away under running processes and come back.
func TestServersGoAwayAndComeBack(t *testing.T) {
	in := installReal(t, quickLeases()...)
	front := in.serve("front", frontRoles)
	in.worker("worker", "8")
	in.serve("projections", "projections")
	processes := in.alive()
	for _, p := range processes {
		p.ready()
	}
	all := simple(60, "0.05")
	w := newWorkload(in, front.client())
	pending := func() int { return in.count(`SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`) }
	w.submit(all[:20])
	w.finish()
	await(t, startWithin, "all is published that was told before", func() bool { return pending() == 0 })

	require.NoError(t, in.kafka.Kill(0))
	for _, p := range processes {
		await(t, startWithin, p.name+" says that Kafka is away", func() bool { return p.failing()["kafka"] != "" })
		assert.Contains(t, p.failing()["kafka"], in.brokers[0])
		assert.NotContains(t, p.failing(), "postgres")
	}
	w.submit(all[20:40]) // the outbox keeps them
	assert.Equal(t, 20, pending())
	require.NoError(t, in.kafka.Restart(t.Context(), 0))
	in.awaitReady()
	w.finish()
	assert.Zero(t, in.count(`SELECT count(*) FROM outbox_events WHERE attempts > 0`), "a broker that is away costs no attempts")

	in.postgres.Kill()
	for _, p := range processes {
		await(t, startWithin, p.name+" says that PostgreSQL is away", func() bool { return p.failing()["postgres"] != "" })
		assert.NotContains(t, p.failing(), "kafka")
		assert.True(t, p.running())
	}
	in.refused(front, all[40].request)
	in.postgres.Start()
	in.awaitReady()
	w.submit(all[40:])
	w.finish()

	for _, p := range processes {
		assert.True(t, p.running(), "%s went on", p.name)
	}
	in.audit(all)
	in.results(w.client, all)
	in.stopAll()
}

// refused checks the answer to a submit while the database is away.
func (in *installation) refused(front *process, request client.Request) {
	t := in.t
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.address("api")+"/v1/executions", strings.NewReader(string(body)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+in.token)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	began := time.Now()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	t.Logf("submit without PostgreSQL, after %s: %s", time.Since(began).Round(time.Millisecond), text)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	var problem client.Problem
	require.NoError(t, json.Unmarshal(text, &problem))
	assert.Equal(t, http.StatusServiceUnavailable, problem.Status)
	assert.NotEmpty(t, problem.Code)
	assert.NotContains(t, string(text), "password")
}
