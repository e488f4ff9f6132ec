package realkube_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv/realkube"
)

func TestControlPlane(t *testing.T) {
	t.Parallel()
	b, err := realkube.Find()
	if os.Getenv("MILLRACE_TEST_K8S") == "" {
		t.Skip("set MILLRACE_TEST_K8S=1, or run make test-k8s")
	}
	require.NoError(t, err)
	p, err := realkube.Start(t.Context(), b, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	call := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, p.Host()+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+p.Token())
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	code, text := call(http.MethodGet, "/version", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, text, realkube.KubernetesVersion)
	code, _ = call(http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"one"}}`)
	assert.Equal(t, http.StatusCreated, code)
	require.NoError(t, p.Compact(t.Context()))
	require.NoError(t, p.Compact(t.Context()), "twice is no fault")
	host := p.Host()
	require.NoError(t, p.Restart(t.Context()))
	assert.Equal(t, host, p.Host())
	code, _ = call(http.MethodGet, "/api/v1/namespaces/default/configmaps/one", "")
	assert.Equal(t, http.StatusOK, code)
}

// What does not start says why.
func TestStartFails(t *testing.T) {
	program := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho no room >&2\nexit 3\n"), 0o600))
	require.NoError(t, os.Chmod(program, 0o700))
	_, err := realkube.Start(t.Context(), realkube.Binaries{Etcd: program}, t.TempDir())
	require.ErrorContains(t, err, "etcd has ended: exit status 3\nno room")
	_, err = realkube.Start(t.Context(), realkube.Binaries{Etcd: "/no/such/program"}, t.TempDir())
	require.ErrorContains(t, err, "no such file")
}

// What was built is found without being built again, and what is not there is said to be
// missing.
func TestBuild(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, err := realkube.Find()
	require.ErrorIs(t, err, realkube.ErrMissing)
	_, err = realkube.Build(context.WithoutCancel(t.Context()), t.TempDir(), io.Discard)
	require.ErrorContains(t, err, "build etcd", "there are no modules")

	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "millrace", "kube-"+realkube.KubernetesVersion+"-etcd-"+realkube.EtcdVersion)
	for _, name := range []string{"etcd", "kube-apiserver"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	b, err := realkube.Build(t.Context(), t.TempDir(), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "kube-apiserver"), b.APIServer)
}
