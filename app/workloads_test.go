package app_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/sagas/execution"
)

// A saga whose constructor asks for workloads gets pods.
func TestAnExecutionSagaRunsItsProgramInAPod(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	cluster.AddNode(t, kubetest.Node{})
	namespace := cluster.Namespace(t)
	starters := make(chan sagas.Starter, 1)
	p := start(t, upConfig(t, testenv.DataDir(t),
		"worker.executors", "process,kubernetes", "kubernetes.kubeconfig", kubeconfig(t, cluster.Config()), "kubernetes.namespace", namespace),
		app.Saga(func(w execution.Workloads, s sagas.Starter) (sagas.Saga, error) {
			starters <- s
			return execution.New(execution.Config{Workloads: w, Limit: time.Hour})
		}))
	id, err := (<-starters).Start(t.Context(), sagas.Start{
		Saga: execution.Name, State: execution.State{Spec: json.RawMessage(`{"script":"#!/bin/sh\nexit 3\n"}`)},
	})
	require.NoError(t, err)
	var state execution.State
	require.Eventually(t, func() bool {
		instance, err := p.api().Instance(t.Context(), id, 0)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(instance.Variables, &state))
		return instance.Status == "COMPLETED"
	}, patience, 50*time.Millisecond)
	require.NotNil(t, state.Result)
	assert.Equal(t, 3, *state.Result.ExitCode)
	pods, err := cluster.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, pods.Items)
	require.NoError(t, p.stop())
}
