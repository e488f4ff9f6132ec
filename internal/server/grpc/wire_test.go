package grpc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/internal/server/grpc"
)

// document is what the OpenAPI document says of the REST interface, as far as it matters.
type document struct {
	Paths map[string]map[string]struct {
		Parameters []struct{ Name, In string }
		Request    struct {
			Content map[string]struct{ Schema schema }
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Format     string
	Properties map[string]schema
	Items      *schema
	OneOf      []schema `json:"oneOf"`
	Additional any      `json:"additionalProperties"`
}

func (d *document) resolve(s schema) schema {
	if name := strings.TrimPrefix(s.Ref, "#/components/schemas/"); name != s.Ref {
		return d.Components.Schemas[name]
	}
	return s
}

// asked is a request that reached the REST interface.
type asked struct {
	method, path string
	query        []string
	headers      http.Header
	body         map[string]json.RawMessage
}

// recorder answers every request with an empty object and remembers it.
type recorder struct {
	mu   sync.Mutex
	seen []asked
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	one := asked{method: req.Method, path: req.URL.Path, headers: req.Header, query: slices.Sorted(maps.Keys(req.URL.Query()))}
	text, _ := io.ReadAll(req.Body)
	if len(text) > 0 {
		_ = json.Unmarshal(text, &one.body)
	}
	r.mu.Lock()
	r.seen = append(r.seen, one)
	r.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("{}"))
}

func (r *recorder) last(t *testing.T) asked {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.seen)
	return r.seen[len(r.seen)-1]
}

// TestCallsAreRoutes: each call of millrace.v1 is a route of the REST interface, all its
// fields are known there, and everything that the route takes and answers has a field.
func TestCallsAreRoutes(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	table := errorTable(t, logger)
	var doc document
	require.NoError(t, json.Unmarshal(table.OpenAPI(), &doc))
	routes := &recorder{}
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.REST = tableOnly{handle: routes.ServeHTTP, table: table} })
	calls := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("millrace.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for k := range service.Methods().Len() {
				calls++
				method := service.Methods().Get(k)
				t.Run(string(method.Name()), func(t *testing.T) { checkCall(t, b, routes, &doc, method) })
			}
		}
		return true
	})
	assert.Greater(t, calls, 30)
}

// ofStreams are parameters that routes have when they are asked for a stream.
func ofStreams() []string { return []string{"follow", "last_event_id"} }

// ofContract are members of problems on the routes of workflows.
func ofContract() []string {
	return []string{"error", "message", "reason", "state", "dispatch_mode", "hint"}
}

func checkCall(t *testing.T, b *bench, routes *recorder, doc *document, method protoreflect.MethodDescriptor) {
	in := dynamicpb.NewMessage(method.Input())
	populate(in, 0)
	full := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	if method.IsStreamingServer() {
		watch(t, b, full, in, method.Output())
	} else {
		require.NoError(t, b.conn.Invoke(t.Context(), full, in, dynamicpb.NewMessage(method.Output())))
	}
	got := routes.last(t)
	path := strings.Replace(got.path, "/the-id", "/{id}", 1)
	op, known := doc.Paths[path][strings.ToLower(got.method)]
	require.True(t, known, "%s %s is no route", got.method, path)

	var parameters []string
	for _, p := range op.Parameters {
		if p.In == "query" && !slices.Contains(ofStreams(), p.Name) {
			parameters = append(parameters, p.Name)
		}
		if p.In == "header" && p.Name == "Idempotency-Key" && hasField(method.Input(), "idempotency_key") && got.body["idempotency_key"] == nil {
			assert.NotEmpty(t, got.headers.Get(p.Name))
		}
	}
	for _, name := range got.query {
		assert.Contains(t, append(parameters, ofStreams()...), name, "parameter")
	}
	if method.IsStreamingServer() {
		return // their answers are no documents
	}
	if got.method == http.MethodGet {
		assert.ElementsMatch(t, parameters, got.query, "every parameter has a field")
	}
	if op.Request.Content != nil {
		body := doc.resolve(op.Request.Content["application/json"].Schema)
		assert.Subset(t, slices.Collect(maps.Keys(body.Properties)), slices.Collect(maps.Keys(got.body)), "fields of the body")
		assert.Subset(t, slices.Collect(maps.Keys(got.body)), without(slices.Collect(maps.Keys(body.Properties)), "$schema"), "every member has a field")
	}
	for code, response := range op.Responses {
		if content, found := response.Content["application/json"]; found && code < "300" {
			checkAnswer(t, doc, method.Output(), content.Schema)
		}
	}
}

// checkAnswer holds the members of an answer against the message, or the field of it that
// the whole answer becomes.
func checkAnswer(t *testing.T, doc *document, m protoreflect.MessageDescriptor, s schema) {
	t.Helper()
	for _, one := range s.OneOf {
		checkAnswer(t, doc, m, one)
	}
	if len(s.OneOf) > 0 {
		return
	}
	name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	for i := range m.Fields().Len() {
		if fd := m.Fields().Get(i); fd.Message() != nil && !fd.IsList() && string(fd.Message().Name()) == name {
			sameShape(t, doc, fd.Message(), s, map[string]bool{})
			return
		}
	}
	sameShape(t, doc, m, s, map[string]bool{})
}

// sameShape checks that each member of a schema has a field of a fitting kind.
func sameShape(t *testing.T, doc *document, m protoreflect.MessageDescriptor, s schema, seen map[string]bool) {
	t.Helper()
	s = doc.resolve(s)
	if seen[string(m.FullName())] {
		return
	}
	seen[string(m.FullName())] = true
	for name, member := range s.Properties {
		if name == "$schema" || m.Name() == "Problem" && slices.Contains(ofContract(), name) {
			continue
		}
		fd := fieldFor(m, name)
		if !assert.NotNil(t, fd, "%s has no field for %q", m.FullName(), name) {
			continue
		}
		member = doc.resolve(member)
		if member.Items != nil {
			assert.True(t, fd.IsList() || fd.Kind() == protoreflect.BytesKind, "%s", fd.FullName())
			member = doc.resolve(*member.Items)
		}
		if member.Properties != nil && fd.Message() != nil && !fd.IsMap() {
			sameShape(t, doc, fd.Message(), member, seen)
			continue
		}
		assert.Contains(t, kindsOf(member), fd.Kind(), "%s for %v", fd.FullName(), member)
	}
}

func kindsOf(s schema) []protoreflect.Kind {
	switch s.Type {
	case "string":
		return []protoreflect.Kind{protoreflect.StringKind, protoreflect.EnumKind, protoreflect.BytesKind, protoreflect.MessageKind}
	case "integer":
		return []protoreflect.Kind{protoreflect.Int32Kind, protoreflect.Int64Kind}
	case "number":
		return []protoreflect.Kind{protoreflect.DoubleKind}
	case "boolean":
		return []protoreflect.Kind{protoreflect.BoolKind}
	}
	return []protoreflect.Kind{protoreflect.MessageKind, protoreflect.BytesKind}
}

// fieldFor is the field that becomes a member of that name.
func fieldFor(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	for _, candidate := range []string{name, name + "_json"} {
		if fd := m.Fields().ByName(protoreflect.Name(candidate)); fd != nil {
			return fd
		}
	}
	return m.Fields().ByJSONName(name)
}

func hasField(m protoreflect.MessageDescriptor, name protoreflect.Name) bool {
	return m.Fields().ByName(name) != nil
}

func without(names []string, out string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == out })
}

// populate sets every field.
func populate(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case fd.IsList():
			m.Mutable(fd).List().Append(some(m, fd, depth, m.Mutable(fd).List().NewElement))
		default:
			m.Set(fd, some(m, fd, depth, func() protoreflect.Value { return m.NewField(fd) }))
		}
	}
}

func some(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int, fresh func() protoreflect.Value) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(3)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 53)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(`{"n":9007199254740993}`))
	case protoreflect.MessageKind:
		v := fresh()
		var known proto.Message
		switch v.Message().Descriptor().FullName() {
		case "google.protobuf.Timestamp":
			known = &timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 5000}
		case "google.protobuf.Duration":
			known = &durationpb.Duration{Seconds: 90}
		case "google.protobuf.Struct":
			known, _ = structpb.NewStruct(map[string]any{"a": 1})
		default:
			if depth < 5 {
				populate(v.Message(), depth+1)
			}
			return v
		}
		text, _ := proto.Marshal(known)
		_ = proto.Unmarshal(text, v.Message().Interface())
		return v
	default:
		if fd.Name() == "id" && depth == 0 {
			return protoreflect.ValueOfString("the-id")
		}
		return protoreflect.ValueOfString(fmt.Sprintf("some %s", fd.Name()))
	}
}

// watch opens a stream and reads it to its end.
func watch(t *testing.T, b *bench, method string, in proto.Message, out protoreflect.MessageDescriptor) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := b.conn.NewStream(ctx, streamOfAnswers(), method)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(in))
	require.NoError(t, stream.CloseSend())
	for err == nil {
		err = stream.RecvMsg(dynamicpb.NewMessage(out))
	}
	require.ErrorIs(t, err, io.EOF)
}
