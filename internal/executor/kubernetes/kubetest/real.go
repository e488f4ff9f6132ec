package kubetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
	"github.com/millrace/millrace/internal/testenv/realkube"
)

// RealEnv is the variable that has Start make real clusters.
const RealEnv = "MILLRACE_TEST_K8S"

// IsReal says whether Start makes real clusters.
func IsReal() bool { return os.Getenv(RealEnv) != "" }

// Real returns a cluster with the API server of Kubernetes itself, with etcd and RBAC. The
// test is skipped if they were not built, unless MILLRACE_TEST_K8S asks for them.
func Real(t testing.TB) *Cluster {
	t.Helper()
	binaries, err := realkube.Find()
	if errors.Is(err, realkube.ErrMissing) && !IsReal() {
		t.Skip(err)
	}
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "kubetest-") // shorter than t.TempDir, and gone before it would be
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := newReal(t.Context(), binaries, dir)
	require.NoError(t, err)
	return assemble(t, p)
}

// real is a plane with the API server of Kubernetes. Its gate is a proxy.
type real struct {
	plane   *realkube.ControlPlane
	theGate *faults.Gate
	gatedAt *listener
	through *http.Transport
}

func newReal(ctx context.Context, b realkube.Binaries, dir string) (*real, error) {
	plane, err := realkube.Start(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(plane.Host())
	if err != nil {
		plane.Stop()
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(plane.CA())
	r := &real{plane: plane, through: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 100,
	}}
	r.theGate = faults.New(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: r.through, FlushInterval: -1, ErrorLog: log.New(discard{}, "", 0),
		// What cannot be reached looks so from outside as well.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	if r.gatedAt, err = listen(r.theGate); err != nil {
		plane.Stop()
		return nil, fmt.Errorf("open gate: %w", err)
	}
	return r, nil
}

// discard takes what the proxy would log: faults are what it is for.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (r *real) gated() *rest.Config {
	c := r.gatedAt.config()
	c.BearerToken = r.plane.Token()
	return c
}

func (r *real) direct() *rest.Config {
	return &rest.Config{
		Host: r.plane.Host(), BearerToken: r.plane.Token(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.plane.CA()},
	}
}

func (r *real) gate() *faults.Gate                { return r.theGate }
func (r *real) restart(ctx context.Context) error { return r.plane.Restart(ctx) }
func (r *real) compact(ctx context.Context) error { return r.plane.Compact(ctx) }

func (r *real) stop() {
	r.theGate.Close()
	r.gatedAt.close()
	r.through.CloseIdleConnections()
	r.plane.Stop()
}
