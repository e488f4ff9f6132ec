package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace/millrace/sdk/go/client"
)

// Server puts an Engine behind the interfaces of a real one, on loopback ports.
type Server struct {
	// URL is where REST is served: "http://127.0.0.1:1234".
	URL string
	// Target is where gRPC is served: "127.0.0.1:1235".
	Target string

	engine *Engine
	http   *httptest.Server
	grpc   *grpc.Server
}

// NewServer serves an engine until Close.
func NewServer(e *Engine) (*Server, error) { return NewServerAt(e, "127.0.0.1:0") }

// NewServerAt is NewServer with a given address for gRPC: that of a server that was closed,
// which is how an engine comes back.
func NewServerAt(e *Engine, target string) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", target)
	if err != nil {
		return nil, err
	}
	s := &Server{engine: e, http: httptest.NewServer(Handler(e)), grpc: grpc.NewServer(ServerOptions()...), Target: listener.Addr().String()}
	s.URL = s.http.URL
	Register(s.grpc, e)
	go func() { _ = s.grpc.Serve(listener) }() // until Close
	return s, nil
}

// Close ends both interfaces and the calls under way.
func (s *Server) Close() {
	s.grpc.Stop()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Drain goes down in order: sessions are told that no more jobs come and may go on with
// what they hold, and no new call is taken. It returns when all calls have ended.
func (s *Server) Drain() {
	s.engine.Drain()
	s.grpc.GracefulStop()
	s.Close()
}

// Handler is the REST interface of an engine: POST /v1/jobs/poll, complete, fail and
// heartbeat, the latter three by job and in batches.
func Handler(e *Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs/poll", route(e.servePoll))
	mux.HandleFunc("POST /v1/jobs/{id}/complete", route(e.serveComplete))
	mux.HandleFunc("POST /v1/jobs/{id}/fail", route(e.serveFail))
	if !e.bare {
		mux.HandleFunc("POST /v1/jobs/complete", route(e.serveCompleteMany))
		mux.HandleFunc("POST /v1/jobs/heartbeat", route(e.serveHeartbeat))
	}
	return mux
}

// report is the body of all reports, and of the items of their batches.
type report struct {
	JobID        string          `json:"jobId"`
	WorkerID     string          `json:"workerId"`
	Token        int64           `json:"token"`
	Variables    json.RawMessage `json:"variables"`
	Retryable    bool            `json:"retryable"`
	ErrorMessage string          `json:"errorMessage"`
	ErrorCode    string          `json:"errorCode"`
	LeaseSeconds float64         `json:"leaseSeconds"`
	RetryAfter   float64         `json:"retryAfter"`
	Completions  []report        `json:"completions"`
	Beats        []report        `json:"beats"`
}

type reportResult struct {
	JobID         string     `json:"jobId"`
	Status        int        `json:"status"`
	LockExpiresAt *time.Time `json:"lockExpiresAt,omitempty"`
	Problem       *problem   `json:"problem,omitempty"`
}

type problem struct {
	Code   string `json:"code"`
	Word   string `json:"error"`
	Reason string `json:"reason"`
}

// route decodes a body, calls, and encodes: a nil answer is 204.
func route[T any](do func(r *http.Request, in T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		var out any
		err := json.NewDecoder(r.Body).Decode(&in)
		if err != nil {
			err = &client.Error{Kind: client.ErrInvalid, Code: "bad_request", Message: err.Error()}
		} else {
			out, err = do(r, in)
		}
		switch {
		case err != nil:
			var e *client.Error
			_ = errors.As(err, &e)
			status, code := statusOf(err), "error"
			if e != nil && e.Code != "" {
				code = e.Code
			}
			writeJSON(w, status, map[string]any{"error": code, "code": code, "message": err.Error()})
		case out == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, out)
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // nobody is left to tell when the client has gone
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, client.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, client.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, client.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, client.ErrPollingDisabled):
		return http.StatusGone
	case errors.Is(err, client.ErrDenied):
		return http.StatusUnauthorized
	case errors.Is(err, client.ErrUnsupported):
		return http.StatusNotImplemented
	default:
		return http.StatusServiceUnavailable
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (e *Engine) servePoll(r *http.Request, in struct {
	WorkerID     string   `json:"workerId"`
	JobTypes     []string `json:"jobTypes"`
	MaxJobs      int      `json:"maxJobs"`
	LeaseSeconds float64  `json:"leaseSeconds"`
	WaitSeconds  float64  `json:"waitSeconds"`
}) (any, error) {
	jobs, err := e.PollJobs(r.Context(), client.PollRequest{
		WorkerID: in.WorkerID, JobTypes: in.JobTypes, MaxJobs: in.MaxJobs, Lease: seconds(in.LeaseSeconds), Wait: seconds(in.WaitSeconds),
	})
	if jobs == nil {
		jobs = []client.Job{}
	}
	return map[string]any{"jobs": jobs}, err
}

func (e *Engine) serveComplete(r *http.Request, in report) (any, error) {
	return nil, e.CompleteJob(r.Context(), client.Completion{JobID: r.PathValue("id"), WorkerID: in.WorkerID, Token: in.Token, Variables: in.Variables})
}

func (e *Engine) serveFail(r *http.Request, in report) (any, error) {
	return nil, e.FailJob(r.Context(), client.Failure{
		JobID: r.PathValue("id"), WorkerID: in.WorkerID, Token: in.Token, Retryable: in.Retryable, Code: in.ErrorCode, Message: in.ErrorMessage,
		RetryAfter: seconds(in.RetryAfter),
	})
}

func (e *Engine) serveCompleteMany(r *http.Request, in report) (any, error) {
	completions := make([]client.Completion, len(in.Completions))
	for i, c := range in.Completions {
		completions[i] = client.Completion{JobID: c.JobID, WorkerID: orElse(c.WorkerID, in.WorkerID), Token: c.Token, Variables: c.Variables}
	}
	results := make([]reportResult, len(completions))
	for i, err := range e.CompleteJobs(r.Context(), completions) {
		if errors.Is(err, client.ErrUnavailable) {
			return nil, err
		}
		results[i] = resultOf(completions[i].JobID, err)
	}
	return map[string]any{"results": results}, nil
}

func (e *Engine) serveHeartbeat(r *http.Request, in report) (any, error) {
	beats := make([]client.Beat, len(in.Beats))
	for i, b := range in.Beats {
		beats[i] = client.Beat{JobID: b.JobID, WorkerID: orElse(b.WorkerID, in.WorkerID), Token: b.Token, Lease: seconds(b.LeaseSeconds)}
	}
	answers, err := e.Heartbeat(r.Context(), beats)
	if err != nil {
		return nil, err
	}
	results := make([]reportResult, len(beats))
	for i, answer := range answers {
		results[i] = resultOf(beats[i].JobID, answer.Err)
		if answer.Err == nil {
			results[i].LockExpiresAt = &answer.LockExpiresAt
		}
	}
	return map[string]any{"results": results}, nil
}

func resultOf(jobID string, err error) reportResult {
	if err == nil {
		return reportResult{JobID: jobID, Status: http.StatusNoContent}
	}
	var e *client.Error
	if !errors.As(err, &e) {
		e = &client.Error{Message: err.Error()}
	}
	return reportResult{JobID: jobID, Status: statusOf(err), Problem: &problem{Code: e.Code, Word: e.Code, Reason: e.Message}}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
