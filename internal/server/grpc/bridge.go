package grpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/rest"
)

// REST is the REST interface; *rest.API implements it. Its handler checks tokens and
// scopes itself.
type REST interface {
	http.Handler
	// Problem turns an error of the services below into what a caller is told.
	Problem(ctx context.Context, err error) *problem.Problem
}

// bridge makes calls of millrace.v1 by asking the handlers of the REST interface, within
// the process. So there is one place that says what a request means, what it may and what
// is wrong with it; this one only changes the clothes.
type bridge struct{ rest REST }

// route says which request a call is.
type route struct {
	method, path string
	// into is the field of the answer that the body becomes; empty: the body has the
	// fields of the answer itself.
	into string
	// keyHeader sends idempotency_key as the header of that name.
	keyHeader bool
	// choose overrides into by what was answered. May be nil.
	choose func(status int, in proto.Message) string
}

const (
	keyField       = "idempotency_key"
	replayedField  = "replayed"
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

// ask makes a request of a message and fills the answer.
func ask[A any, P interface {
	*A
	proto.Message
}](ctx context.Context, b *bridge, r route, in proto.Message) (P, error) {
	req, err := r.request(ctx, in)
	if err != nil {
		return nil, err
	}
	w := &memory{header: http.Header{}}
	if err := b.serve(w, req); err != nil {
		return nil, err
	}
	if err := refused(w.status, w.header, w.body.Bytes()); err != nil {
		return nil, err
	}
	out := P(new(A))
	return out, r.fill(w, in, out.ProtoReflect())
}

// serve asks the handler. One that breaks its answer off panics; here that is an error.
func (b *bridge) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		cause := recover()
		if abort, ok := cause.(error); ok && errors.Is(abort, http.ErrAbortHandler) {
			err = problem.Unavailable().With("the answer broke off: ask again")
		} else if cause != nil {
			panic(cause)
		}
	}()
	b.rest.ServeHTTP(w, r)
	return nil
}

// request is the request that a call is. The fields that are in the path are in no other
// place.
func (r route) request(ctx context.Context, in proto.Message) (*http.Request, error) {
	m := in.ProtoReflect()
	path, skip, err := r.fillPath(m)
	if err != nil {
		return nil, err
	}
	if r.keyHeader {
		skip = append(skip, keyField)
	}
	target := &url.URL{Path: path}
	var body []byte
	if r.method == http.MethodGet {
		q, err := query(m, skip...)
		if err != nil {
			return nil, err
		}
		target.RawQuery = q.Encode()
	} else if body, err = encode(m, skip...); err != nil {
		return nil, err
	}
	ctx = rest.WithOrigin(ctx, "grpc")
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, problem.InvalidParameter().With(err.Error())
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get(authorizationKey)) > 0 {
		req.Header.Set("Authorization", md.Get(authorizationKey)[0])
	}
	req.Header.Set("Content-Type", "application/json")
	if r.keyHeader {
		if fd := m.Descriptor().Fields().ByName(keyField); m.Has(fd) {
			req.Header.Set(keyHeader, m.Get(fd).String())
		}
	}
	return req, nil
}

// fillPath puts the id into the path.
func (r route) fillPath(m protoreflect.Message) (path string, skip []string, err error) {
	if !strings.Contains(r.path, "{id}") {
		return r.path, nil, nil
	}
	id := m.Get(m.Descriptor().Fields().ByName("id")).String()
	if id == "" {
		return "", nil, invalid("id", "required", "is required")
	}
	if strings.ContainsAny(id, "/\\") || strings.Trim(id, ".") == "" {
		return "", nil, invalid("id", "invalid", "is not an id")
	}
	return strings.Replace(r.path, "{id}", id, 1), []string{"id"}, nil
}

// fill makes the body the answer of the call.
func (r route) fill(w *memory, in proto.Message, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	into := r.into
	if r.choose != nil {
		into = r.choose(w.status, in)
	}
	target := m
	if into != "" {
		target = m.Mutable(fields.ByName(protoreflect.Name(into))).Message()
	}
	if err := decode(w.body.Bytes(), target); err != nil {
		return fmt.Errorf("answer of %s %s: %w", r.method, r.path, err)
	}
	if fd := fields.ByName(replayedField); fd != nil && w.header.Get(replayedHeader) == "true" {
		m.Set(fd, protoreflect.ValueOfBool(true))
	}
	return nil
}

// refused is the problem of an answer, or nil.
func refused(status int, header http.Header, body []byte) error {
	switch {
	case status < http.StatusMultipleChoices:
		return nil
	case status < http.StatusBadRequest: // the mux would have another path
		return problem.RouteNotFound().With("the id is not one")
	}
	p := fromProblem(body, status)
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return p
}

// memory is an answer that is kept.
type memory struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *memory) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *memory) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *memory) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// pieces is an answer that goes on as it comes. What is refused is kept.
type pieces struct {
	memory
	// began is called once, with the header of an answer that is none of a refusal, send
	// with each piece of it.
	began func(h http.Header) error
	send  func(p []byte) error
	err   error
}

// WriteHeader implements http.ResponseWriter.
func (w *pieces) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if status == http.StatusOK {
		w.err = w.began(w.header)
	}
}

// Write implements http.ResponseWriter.
func (w *pieces) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.status != http.StatusOK {
		return w.body.Write(p)
	}
	if w.err == nil {
		w.err = w.send(p)
	}
	return len(p), w.err
}

// Flush and the deadlines are what streams ask of a connection. A call has its own flow
// control and ends with its context.

// Flush implements http.Flusher.
func (w *pieces) Flush() {}

// SetWriteDeadline implements what http.ResponseController looks for.
func (w *pieces) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline implements what http.ResponseController looks for.
func (w *pieces) SetReadDeadline(time.Time) error { return nil }

// serveStream asks the handler and passes its answer on.
func (b *bridge) serveStream(r *http.Request, began func(http.Header) error, send func([]byte) error) error {
	w := &pieces{memory: memory{header: http.Header{}}, began: began, send: send}
	if err := b.serve(w, r); err != nil {
		return err
	}
	if err := refused(w.status, w.header, w.body.Bytes()); err != nil {
		return err
	}
	return w.err
}

// watched is a stream of server-sent events as messages.
type watched[M any] struct {
	stream rpc.ServerStreamingServer[M]
	wrap   func(cursor, kind string, data []byte) *M
	rest   []byte
	// cursor is the last id that was told.
	cursor string
}

// write takes a piece of the stream. Events end with an empty line.
func (s *watched[M]) write(p []byte) error {
	s.rest = append(s.rest, p...)
	for {
		block, rest, found := bytes.Cut(s.rest, []byte("\n\n"))
		if !found {
			s.rest = slices.Clone(s.rest)
			return nil
		}
		s.rest = rest
		if err := s.event(block); err != nil {
			return err
		}
	}
}

func (s *watched[M]) event(block []byte) error {
	var kind string
	var data []byte
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "id":
			s.cursor = string(value)
		case "event":
			kind = string(value)
		case "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if kind == "" {
		return nil // a ping, or when to connect again
	}
	return s.stream.Send(s.wrap(s.cursor, kind, data))
}
