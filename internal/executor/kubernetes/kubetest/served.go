package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/apiserver"
	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"
)

// served is a plane with the API server of package apiserver.
type served struct {
	api      *apiserver.Server
	theGate  *faults.Gate
	gatedAt  *listener
	directAt *listener
}

func newServed() (*served, error) {
	api := apiserver.New(apiserver.Config{})
	s := &served{api: api, theGate: faults.New(api)}
	var err error
	if s.gatedAt, err = listen(s.theGate); err != nil {
		return nil, err
	}
	if s.directAt, err = listen(api); err != nil {
		s.gatedAt.close()
		return nil, err
	}
	return s, nil
}

func (s *served) gated() *rest.Config  { return s.gatedAt.config() }
func (s *served) direct() *rest.Config { return s.directAt.config() }
func (s *served) gate() *faults.Gate   { return s.theGate }

func (s *served) restart(context.Context) error {
	for _, l := range []*listener{s.gatedAt, s.directAt} {
		l.cut()
	}
	return errors.Join(s.gatedAt.open(), s.directAt.open())
}

func (s *served) compact(context.Context) error {
	s.api.Compact()
	return nil
}

func (s *served) stop() {
	s.theGate.Close()
	s.gatedAt.close()
	s.directAt.close()
	s.api.Close()
}

// listener serves a handler at an address that it keeps when it is closed and opened again.
type listener struct {
	handler http.Handler
	address string
	server  *http.Server
	done    sync.WaitGroup
	conns   sync.WaitGroup
}

func listen(h http.Handler) (*listener, error) {
	l := &listener{handler: h, address: "127.0.0.1:0"}
	return l, l.open()
}

func (l *listener) open() error {
	var lc net.ListenConfig
	var on net.Listener
	var err error
	for range 100 { // somebody else may have the port for a moment
		if on, err = lc.Listen(context.Background(), "tcp", l.address); err == nil {
			break
		}
		timer := time.NewTimer(20 * time.Millisecond)
		<-timer.C
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.address = on.Addr().String()
	l.server = &http.Server{Handler: l.handler, ReadHeaderTimeout: time.Minute, ConnState: l.count}
	l.done.Go(func() { _ = l.server.Serve(on) })
	return nil
}

// count follows how many connections there are.
func (l *listener) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		l.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		l.conns.Done()
	case http.StateActive, http.StateIdle:
	}
}

// cut cuts all connections, and takes no more.
func (l *listener) cut() {
	_ = l.server.Close()
	l.done.Wait()
}

// close is cut that returns when nobody serves a connection any more.
func (l *listener) close() {
	l.cut()
	l.conns.Wait()
}

func (l *listener) config() *rest.Config {
	return &rest.Config{Host: "http://" + l.address, QPS: -1}
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
