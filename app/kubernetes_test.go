package app_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
	"github.com/millrace/millrace/internal/testenv"
)

// kubeconfig writes one for a cluster.
func kubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts["main"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "main"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*k, path))
	return path
}

// The same spec runs as a process and in a pod, and leaves nothing in the cluster.
func TestOneSpecRunsAsAProcessAndInAPod(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	cluster.AddNode(t, kubetest.Node{})
	namespace := cluster.Namespace(t)
	p := start(t, upConfig(t, testenv.DataDir(t),
		"worker.executors", "process,kubernetes", "kubernetes.kubeconfig", kubeconfig(t, cluster.DirectConfig()), "kubernetes.namespace", namespace))
	api := p.api()

	spec := json.RawMessage(`{"script":"#!/bin/sh -e\ncat greeting; cat; echo \"$MILLRACE_ATTEMPT\"","files":{"greeting":"hello\n"},"stdin":"world\n"}`)
	for _, executor := range []string{"process", "kubernetes"} {
		submitted, err := api.Submit(t.Context(), client.Request{Executor: executor, Spec: spec})
		require.NoError(t, err)
		e := finished(t, api, submitted.ID)
		require.Equal(t, client.Completed, e.State, "%+v", e.Result)
		var stdout bytes.Buffer
		_, err = api.Output(t.Context(), submitted.ID, "stdout", 1, &stdout)
		require.NoError(t, err)
		assert.Equal(t, "hello\nworld\n1\n", stdout.String())
	}
	refused, err := api.Submit(t.Context(), client.Request{Executor: "kubernetes", Spec: json.RawMessage(`{"command":["true"],"image":"evil.example/miner"}`)})
	require.NoError(t, err)
	e := finished(t, api, refused.ID)
	assert.Equal(t, client.Failed, e.State)
	assert.Equal(t, "image_not_allowed", e.Result.Reason)

	require.Eventually(t, func() bool {
		pods, err := cluster.Admin().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		maps, err := cluster.Admin().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=millrace"})
		require.NoError(t, err)
		return len(pods.Items)+len(maps.Items) == 0
	}, patience, 20*time.Millisecond, "pods and config maps are left")
	require.NoError(t, p.stop())
}

// Without a cluster nothing starts, and the error says what to do.
func TestWithoutAClusterAWorkerOfPodsDoesNotStart(t *testing.T) {
	t.Parallel()
	for settings, words := range map[[2]string]string{
		{"kubernetes.kubeconfig", kubeconfig(t, &rest.Config{Host: "http://127.0.0.1:1"})}: "did not answer within the start deadline: ask the cluster: ",
		{"kubernetes.context", "no-such-context"}:                                          "kubernetes.context: ",
	} {
		cfg := sharedConfig(t, "worker.executors", "kubernetes", "start_deadline", "5s", settings[0], settings[1])
		err := app.Run(t.Context(), cfg)
		require.ErrorContains(t, err, words)
	}
}
