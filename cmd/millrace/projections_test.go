package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	oneRebuiltTable = `{"id":"` + id1 + `","projection":"data-index","mode":"rebuild","from":"event_log","state":"DONE","phase":"finished","done":1000000,"total":1000000,
		"skipped":2,"skipped_first":"offset 7 of partition 3: the event carries no sequence","rows":500001,"rows_built":500000,"carried":12,"horizon":"2025-12-01T12:00:00Z",
		"missing":1,"surplus":2,"different":0,"actor":"ada\u001b[31m","reason":"after the upgrade","created_at":"2026-03-01T11:57:00Z","updated_at":"2026-03-01T11:58:00Z",
		"finished_at":"2026-03-01T11:58:00Z","old_until":"2026-03-01T13:00:00Z"}`
	oneLoading = `{"id":"` + id2 + `","projection":"data-index","mode":"verify","from":"kafka","state":"RUNNING","phase":"catching_up","done":250000,"total":1000000,
		"per_second":31000,"remaining_seconds":24,"actor":"ada","note":"waits for the source","created_at":"2026-03-01T11:59:00Z","updated_at":"2026-03-01T11:59:30Z"}`
	someProjections = `{"projections":[
		{"name":"data-index","topic":"flow-lifecycle-out","version":"b2","built_version":"a1","rebuild_advised":true,"lag":7,
		 "tables":[{"name":"workflow_instances","rows":100,"bytes":1000000},{"name":"task_instances","rows":400,"bytes":2000000}],"last_rebuild":` + oneRebuiltTable + `},
		{"name":"sagas-view","topic":"saga_events","version":"c3","built_version":"c3","tables":[{"name":"saga_views","rows":0,"bytes":8192}]}]}`
	someDifferences = `{"differences":[{"table":"workflow_instances","kind":"missing","key":{"id":"w1"},"columns":{}},
		{"table":"task_instances","kind":"different","key":{"instance_id":"w2","n":1},"columns":{"task_name":{"table":"a","history":"b"}}}]}`
)

func TestProjectionsOutputs(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	path := "/v1/projections/{name}/rebuilds"
	c.api.answers("GET /v1/projections", 200, someProjections)
	c.api.answers("GET "+path, 200, `{"rebuilds":[`+oneRebuiltTable+`,`+oneLoading+`]}`)
	c.api.answers("GET "+path+"/{id}", 200, oneLoading)
	c.api.answers("GET "+path+"/{id}/differences", 200, someDifferences)
	c.api.answers("POST "+path+"/{id}/cancel", 200, strings.Replace(oneLoading, "RUNNING", "CANCELLING", 1))
	for name, line := range map[string]string{
		"projections_list_table": "projections list", "projections_list_wide": "projections ls -o wide", "projections_list_json": "projections list -o json",
		"projections_list_name": "projections list -o name", "projections_rebuilds_table": "projections rebuilds data-index",
		"projections_status_last": "projections status data-index", "projections_status_one": "projections status data-index " + id2,
		"projections_status_json": "projections status data-index -o json", "projections_differences_table": "projections differences data-index",
		"projections_differences_json": "projections differences data-index -o json", "projections_cancel_table": "projections cancel data-index " + id2,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		c.golden(name)
		assert.NotContains(t, c.out.String(), "\x1b", "no control characters off a terminal, nor from others")
	}
}

func TestTheExitCodeOfARebuildSaysWhatCameOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line, answer string
		code         int
	}{
		"rebuild that mended":  {"projections rebuild data-index", oneRebuiltTable, exitOK},
		"rebuild that failed":  {"projections rebuild data-index", strings.Replace(oneRebuiltTable, "DONE", "FAILED", 1), exitFailure},
		"verify that found":    {"projections verify data-index", strings.Replace(oneRebuiltTable, `"mode":"rebuild"`, `"mode":"verify"`, 1), exitFailure},
		"verify that did not":  {"projections verify data-index", `{"state":"DONE","mode":"verify","missing":0,"surplus":0,"different":0}`, exitOK},
		"cancelled":            {"projections verify data-index", `{"state":"CANCELLED","mode":"verify"}`, exitFailure},
		"nobody waits for it":  {"projections verify data-index --no-wait", oneLoading, exitOK},
		"an estimate":          {"projections rebuild data-index --dry-run", `{"records":5,"bytes":1000000,"free_bytes":2000000}`, exitOK},
		"a wrong source":       {"projections rebuild data-index --from tape", "", exitUsage},
		"a wrong time":         {"projections rebuild data-index --keep-old soon", "", exitUsage},
		"nothing named":        {"projections rebuild", "", exitUsage},
		"a limit out of range": {"projections rebuilds data-index --limit 0", "", exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t)
			c.api.answers("POST /v1/projections/{name}/rebuilds", 202, test.answer)
			assert.Equal(t, test.code, c.run(strings.Fields(test.line)...), c.err.String())
			if strings.Contains(test.line, "--dry-run") {
				assert.Equal(t, "about 5 records are read, and about 1.0 MB more of disk are needed meanwhile, of 2.0 MB that are free\n", c.out.String())
			}
		})
	}
}

func TestRebuildsAreAskedForAsSaid(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.api.answers("POST /v1/projections/{name}/rebuilds", 202, oneRebuiltTable)
	for line, want := range map[string]string{
		"projections rebuild data-index":                                                `{"mode":"rebuild","from":"event_log"}`,
		"projections rebuild data-index --from kafka --keep-old 24h --force --reason r": `{"mode":"rebuild","from":"kafka","keep_old":"24h","force":true,"reason":"r"}`,
	} {
		require.Equal(t, exitOK, c.run(strings.Fields(line)...), c.err.String())
		request, body, _ := c.api.last()
		assert.Equal(t, "POST /v1/projections/data-index/rebuilds", request)
		assert.JSONEq(t, want, body, line)
	}
}
