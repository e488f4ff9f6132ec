package configs_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/limits"
)

const limitsFile = `
coordinator:
  classes:
    gpu: {slots: 4, cpu: 1.5, memory: 64GiB, gpus: 8}
  limits:
    per-user: {rate: 100/s, burst: 20, action: reject}
    team:
      per: key
      key: labels.team + "/" + (labels["cost.centre"] ?? "")
      when: origin.kind != "rerun" && priority < 5
      rate: 1000/1h
      concurrency: 2
  weights:
    acme/ada.lovelace@example.org: 2.5
  queue_depth: {user: 1000, total: 100000}
`

func TestLimitsOfTheCoordinator(t *testing.T) {
	t.Parallel()
	sources := configs.Sources{
		File:      write(t, "millrace.yaml", limitsFile),
		Environ:   env(t, "MILLRACE_COORDINATOR_LIMITS_TEAM_BURST=7", "MILLRACE_COORDINATOR_LIMITS_TENANT_PER=tenant"),
		Overrides: []configs.Override{{Path: "coordinator.limits.tenant.concurrency", Value: "3"}, {Path: "coordinator.weights", Value: "acme/bob=0.5"}},
	}
	config, err := sources.Load()
	require.NoError(t, err)
	assert.Equal(t, []limits.Definition{
		{Name: "per-user", Per: limits.PerUser, Rate: limits.Rate{Tokens: 100, Per: time.Second}, Burst: 20, Action: limits.Reject},
		{
			Name: "team", Per: limits.PerKey, Key: `labels.team + "/" + (labels["cost.centre"] ?? "")`, When: `origin.kind != "rerun" && priority < 5`,
			Rate: limits.Rate{Tokens: 1000, Per: time.Hour}, Burst: 7, Concurrency: 2, Action: limits.Queue,
		},
		{Name: "tenant", Per: limits.PerTenant, Concurrency: 3, Action: limits.Queue},
	}, config.LimitDefinitions())
	assert.Equal(t, configs.Class{Slots: 4, CPU: 1500, Memory: 64 * configs.GiB, GPUs: 8}, config.Coordinator.Classes["gpu"])
	assert.Equal(t, map[string]float64{"acme/ada.lovelace@example.org": 2.5, "acme/bob": 0.5}, config.Coordinator.Weights)
	assert.Equal(t, configs.QueueDepth{User: 1000, Total: 100_000}, config.Coordinator.QueueDepth)

	var printed bytes.Buffer
	require.NoError(t, config.WriteYAML(&printed, nil))
	again, err := configs.Sources{Environ: env(t), File: write(t, "again.yaml", printed.String())}.Load()
	require.NoError(t, err, printed.String())
	assert.Equal(t, config.Coordinator, again.Coordinator)
}

func TestEveryFaultOfLimitsIsReportedWithItsPlace(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
coordinator:
  classes:
    gpu: {slots: -1, cpu: many, memory: 1YiB}
  limits:
    Bad Name: {rate: 1/s}
    nothing: {per: tenant}
    kind: {per: group, rate: 1/s}
    act: {rate: 1/s, action: drop}
    words: {rate: fast}
    typo: {rat: 1/s}
    team:
      per: key
      key: labels.team ==
      when: usr == "ada"
      rate: 0/s
      burst: -1
    costly: {per: key, key: "len(1..10000000)", rate: 1/s}
    typed: {when: user, concurrency: 1}
  weights: {ada: 2, acme/bob: 0, acme/eve: lots}
  queue_depth: {user: -1}
`)
	_, err := configs.Sources{File: file, Environ: env(t)}.Load()
	assert.ElementsMatch(t, []string{
		"millrace.yaml:4: coordinator.classes.gpu.slots: must be between 0 and 100000, not -1",
		`millrace.yaml:4: coordinator.classes.gpu.cpu: want a number of cores such as 4, 1.5 or 500m, not "many"`,
		`millrace.yaml:4: coordinator.classes.gpu.memory: want a size such as 1MiB, not "1YiB"`,
		`millrace.yaml:6: coordinator.limits.Bad Name: "Bad Name" is not a name: want lower-case letters, digits, '_' and '-', at most 63`,
		"millrace.yaml:7: coordinator.limits.nothing: limits nothing: set rate or concurrency",
		`millrace.yaml:8: coordinator.limits.kind.per: "group" is not one of user, tenant, key`,
		`millrace.yaml:9: coordinator.limits.act.action: "drop" is not one of queue, reject`,
		`millrace.yaml:10: coordinator.limits.words.rate: want a rate such as 100/s or 5/1m, not "fast"`,
		"coordinator.limits.words: limits nothing: set rate or concurrency",
		"millrace.yaml:11: coordinator.limits.typo.rat: is not a setting",
		"coordinator.limits.typo: limits nothing: set rate or concurrency",
		"millrace.yaml:14: coordinator.limits.team.key: line 1, column 15: it ends where something is missing",
		"millrace.yaml:15: coordinator.limits.team.when: line 1, column 1: unknown name usr",
		"millrace.yaml:16: coordinator.limits.team.rate: must have between 1 and 1000000 tokens, not 0",
		"millrace.yaml:17: coordinator.limits.team.burst: must be between 0 and 1000000, not -1",
		`millrace.yaml:18: coordinator.limits.costly.key: evaluate "len(1..10000000)": the expression costs too much: more than 4096 steps`,
		"millrace.yaml:19: coordinator.limits.typed.when: expected bool, but got string",
		`millrace.yaml:20: coordinator.weights: acme/eve: want a number such as 2 or 0.5, not "lots"`,
		"millrace.yaml:21: coordinator.queue_depth.user: must be between 0 and 1000000000, not -1",
	}, withoutSuggestions(faults(t, err), file))
}

func TestWeightsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	_, err := configs.Sources{File: write(t, "millrace.yaml", "coordinator:\n  weights: {ada: 2, acme/bob: 0, /eve: 1}\n"), Environ: env(t)}.Load()
	require.ErrorContains(t, err, `"ada" is not a user: want tenant/user`)
	require.ErrorContains(t, err, "acme/bob must be between 0.01 and 1000, not 0")
	require.ErrorContains(t, err, `"/eve" is not a user`)
}
