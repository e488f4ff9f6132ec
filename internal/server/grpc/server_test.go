package grpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/grpc"
	"github.com/millrace/millrace/internal/server/health"
)

// instances is an engine that knows one instance. What else is asked of it panics.
type instances struct {
	grpc.Engine
	one     engine.Instance
	started engine.StartRequest
	err     error
}

func (e *instances) Get(_ context.Context, id uuid.UUID) (engine.Instance, error) {
	if id != e.one.ID {
		return engine.Instance{}, engine.ErrNotFound
	}
	return e.one, e.err
}

func (e *instances) Start(_ context.Context, r engine.StartRequest) (engine.Instance, error) {
	e.started = r
	return engine.Instance{ID: uuid.Must(uuid.NewV7()), DefinitionID: r.DefinitionID, BusinessKey: r.BusinessKey, Variables: r.Variables}, e.err
}

func TestTokens(t *testing.T) {
	t.Parallel()
	one := &instances{one: engine.Instance{ID: uuid.Must(uuid.NewV7()), Tenant: "other"}}
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine, d.Guard = one, tokens() })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	get := &workflowv1.GetInstanceRequest{Id: one.one.ID.String()}

	_, err := client.GetInstance(t.Context(), get)
	refused(t, err, codes.Unauthenticated, "UNAUTHORIZED")
	_, err = client.GetInstance(bearer(t.Context(), "nobody"), get)
	refused(t, err, codes.Unauthenticated, "UNAUTHORIZED")
	_, err = client.GetInstance(bearer(t.Context(), "reads"), get)
	require.NoError(t, err)
	_, err = client.StartInstance(bearer(t.Context(), "reads"), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	refused(t, err, codes.PermissionDenied, "FORBIDDEN")
	_, err = client.StartInstance(bearer(t.Context(), "writes"), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	require.NoError(t, err)
	assert.Equal(t, "will", one.started.User, "who starts it is who the token stands for")

	_, err = client.GetInstance(bearer(t.Context(), "acme"), get)
	refused(t, err, codes.NotFound, "WORKFLOW_NOT_FOUND")
	_, err = client.ListInstances(bearer(t.Context(), "acme"), &workflowv1.ListInstancesRequest{})
	refused(t, err, codes.PermissionDenied, "FORBIDDEN")
	_, err = client.PollJobs(bearer(t.Context(), "acme"), &workflowv1.PollJobsRequest{WorkerId: "w", JobTypes: []string{"a"}})
	refused(t, err, codes.PermissionDenied, "FORBIDDEN")
	stream, err := client.StreamJobs(bearer(t.Context(), "reads"))
	require.NoError(t, err)
	_, err = stream.Recv()
	refused(t, err, codes.PermissionDenied, "FORBIDDEN")
}

func TestRequestIDsAndMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine = &instances{} })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "mine-1")
	_, err := client.GetInstance(ctx, &workflowv1.GetInstanceRequest{Id: uuid.NewString()}, rpc.Header(&header))
	st := refused(t, err, codes.NotFound, "WORKFLOW_NOT_FOUND")
	assert.Equal(t, []string{"mine-1"}, header.Get("x-request-id"))
	assert.Equal(t, "mine-1", detail[*errdetails.RequestInfo](st).GetRequestId())

	require.NoError(t, b.stop(t.Context()))
	assert.Equal(t, 1, testutil.CollectAndCount(b.metrics, "grpc_requests_duration_seconds"))
	families, err := b.metrics.Gather()
	require.NoError(t, err)
	labels := families[0].GetMetric()[0].GetLabel()
	assert.Equal(t, "code=NotFound", labels[0].GetName()+"="+labels[0].GetValue())
	assert.Equal(t, "method=/workflow.v1.WorkflowEngine/GetInstance", labels[1].GetName()+"="+labels[1].GetValue())
}

func TestBadInputNamesEveryField(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine = &instances{} })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	_, err := client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{BusinessKey: strings.Repeat("x", 300)})
	st := refused(t, err, codes.InvalidArgument, "BAD_REQUEST")
	var fields []string
	for _, v := range detail[*errdetails.BadRequest](st).GetFieldViolations() {
		fields = append(fields, v.GetField()+" "+v.GetReason())
	}
	assert.Equal(t, []string{"definition_id REQUIRED", "business_key TOO_LONG"}, fields)

	for name, in := range map[string]*workflowv1.StartInstanceRequest{
		"no object":  {DefinitionId: "d", VariablesJson: []byte(`[1]`)},
		"no JSON":    {DefinitionId: "d", VariablesJson: []byte(`{"a":`)},
		"no UTF-8":   {DefinitionId: "d", VariablesJson: []byte("{\"a\":\"\xff\"}")},
		"no number":  {DefinitionId: "d", Variables: &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(nan())}}},
		"no UUID":    {DefinitionId: "d", InstanceId: "1"},
		"no band":    {DefinitionId: "d", Priority: 6},
		"no version": {DefinitionId: "d", DefinitionVersion: -1},
		"control":    {DefinitionId: "d\x01"},
	} {
		_, err := client.StartInstance(t.Context(), in)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
	_, err = client.GetInstance(t.Context(), &workflowv1.GetInstanceRequest{Id: "not-a-uuid"})
	refused(t, err, codes.NotFound, "WORKFLOW_NOT_FOUND")
}

func nan() float64 { zero := 0.0; return zero / zero }

// TestNumbersSurviveAsText: what no double can hold passes as text, in both directions.
func TestNumbersSurviveAsText(t *testing.T) {
	t.Parallel()
	one := &instances{}
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine = one })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	set, err := structpb.NewStruct(map[string]any{"loser": true})
	require.NoError(t, err)
	const text = `{"id": 9007199254740993, "amount": 0.10}`
	out, err := client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d", Variables: set, VariablesJson: []byte(text)})
	require.NoError(t, err)
	assert.Equal(t, text, string(one.started.Variables), "the text wins and is as it is written")
	assert.Equal(t, text, string(out.GetInstance().GetVariablesJson()))
	assert.InDelta(t, 9007199254740992.0, out.GetInstance().GetVariables().GetFields()["id"].GetNumberValue(), 0, "the Struct has the nearest double")

	set, err = structpb.NewStruct(map[string]any{"n": 3, "big": 1e21, "f": 0.5, "list": []any{nil, true, "<a&b>"}})
	require.NoError(t, err)
	_, err = client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d", Variables: set})
	require.NoError(t, err)
	assert.JSONEq(t, `{"n":3,"big":1e21,"f":0.5,"list":[null,true,"<a&b>"]}`, string(one.started.Variables))
	assert.Contains(t, string(one.started.Variables), `"n":3}`, "a whole number has no point")
}

func TestMessagesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *grpc.Deps, c *grpc.Config) { d.Engine, c.MaxMessageBytes = &instances{}, 64<<10 })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	_, err := client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{
		DefinitionId: "d", VariablesJson: []byte(`{"a":"` + strings.Repeat("x", 128<<10) + `"}`),
	})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	assert.NoError(t, err, "the connection is as good as before")
}

func TestPanicsAreOneCallsBusiness(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine = &instances{} })
	client := workflowv1.NewWorkflowEngineClient(b.conn)
	_, err := client.WaitInstance(t.Context(), &workflowv1.WaitInstanceRequest{Id: uuid.NewString()})
	st := refused(t, err, codes.Internal, "INTERNAL")
	assert.NotContains(t, st.Message(), "nil pointer", "the cause is for the log")
	assert.Contains(t, b.logs.String(), "grpc handler panicked")
	_, err = client.StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	assert.NoError(t, err)
}

func TestHealthIsThatOfREST(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) {
		d.Guard = tokens() // health asks for none
		d.Health = health.New(health.Check{Name: "postgres", Run: func(context.Context) error {
			if failing.Load() {
				return errors.New("away")
			}
			return nil
		}})
	})
	client := grpc_health_v1.NewHealthClient(b.conn)
	watching, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	state, err := watching.Recv()
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, state.GetStatus())
	list, err := client.List(t.Context(), &grpc_health_v1.HealthListRequest{})
	require.NoError(t, err)
	assert.Contains(t, list.GetStatuses(), "workflow.v1.WorkflowEngine")
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "nobody"})
	assert.Equal(t, codes.NotFound, status.Code(err))

	failing.Store(true)
	state, err = watching.Recv()
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, state.GetStatus())
	one, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "workflow.v1.WorkflowEngine"})
	require.NoError(t, err)
	assert.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, one.GetStatus())

	require.NoError(t, b.stop(t.Context()))
	_, err = watching.Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err), "who watches is told, and holds up nothing")
}

func TestReflection(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Guard = tokens() })
	stream, err := reflectionv1.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	assert.Subset(t, names, []string{
		"workflow.v1.WorkflowEngine", "millrace.v1.ExecutionService", "millrace.v1.DeadLetterService", "millrace.v1.ReplayService",
		"millrace.v1.EventService", "grpc.health.v1.Health",
	})
	require.NoError(t, stream.CloseSend())
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, roots := certificate(t)
	b := newBench(t, func(d *grpc.Deps, c *grpc.Config) { d.Engine, c.CertFile, c.KeyFile = &instances{}, cert, key },
		rpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")))
	_, err := workflowv1.NewWorkflowEngineClient(b.conn).StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	require.NoError(t, err)
	_, err = workflowv1.NewWorkflowEngineClient(connect(t, b.server.Addr())).StartInstance(t.Context(), &workflowv1.StartInstanceRequest{DefinitionId: "d"})
	assert.Equal(t, codes.Unavailable, status.Code(err), "plain text is not answered")

	_, err = grpc.New(grpc.Deps{}, grpc.Config{CertFile: filepath.Join(t.TempDir(), "none"), KeyFile: "none"})
	assert.ErrorContains(t, err, "certificate of the gRPC server")
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return certFile, keyFile, roots
}

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	s, err := grpc.New(grpc.Deps{Health: health.New()}, grpc.Config{Address: taken.Addr().String(), Setting: "grpc.listen (--grpc-listen)"})
	require.NoError(t, err)
	assert.ErrorContains(t, s.Listen(t.Context()), "grpc.listen (--grpc-listen)): another program has taken the port")
	assert.Error(t, s.Serve())
	assert.NoError(t, s.Shutdown(t.Context()))
}

func TestIDsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	client := millracev1.NewExecutionServiceClient(b.conn)
	for _, id := range []string{"", ".", "..", "../../readyz", `a\b`} {
		_, err := client.GetExecution(t.Context(), &millracev1.GetExecutionRequest{Id: id})
		refused(t, err, codes.InvalidArgument, "BAD_REQUEST")
	}
}
