package grpc_test

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	"github.com/millrace/millrace/internal/server/grpc"
)

func newRESTBench(t *testing.T, handle http.HandlerFunc) millracev1.ExecutionServiceClient {
	t.Helper()
	table := errorTable(t, slog.New(slog.DiscardHandler))
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.REST = tableOnly{handle: handle, table: table} })
	return millracev1.NewExecutionServiceClient(b.conn)
}

// TestWatching: server-sent events become messages, however they are cut into pieces.
func TestWatching(t *testing.T) {
	t.Parallel()
	client := newRESTBench(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "c0", r.Header.Get("Last-Event-ID"))
		assert.Equal(t, "forever", r.URL.Query().Get("follow"))
		for _, piece := range []string{"retry: 3000\n\nid: c1\nevent: a.b\nda", "ta: {\"x\":1}\n\n: ping\nid: c2\n\n", "id: c3\nevent: end\ndata: {\"reason\":\"ended\"}\n\n"} {
			_, _ = w.Write([]byte(piece))
			assert.NoError(t, http.NewResponseController(w).Flush())
		}
	})
	stream, err := client.WatchExecution(t.Context(), &millracev1.WatchExecutionRequest{Id: "e", Cursor: "c0", Follow: true})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, "c1 a.b {\"x\":1}", first.GetEvent().GetCursor()+" "+first.GetEvent().GetType()+" "+string(first.GetEvent().GetEventJson()))
	assert.False(t, first.GetEvent().GetNotice())
	last, err := stream.Recv()
	require.NoError(t, err)
	assert.True(t, last.GetEvent().GetNotice())
	assert.Equal(t, "c3", last.GetEvent().GetCursor())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func TestOutputInPieces(t *testing.T) {
	t.Parallel()
	client := newRESTBench(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("attempt") == "9" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Millrace-Attempt", "2")
		w.Header().Set("Millrace-Final", "true")
		_, _ = w.Write([]byte("he"))
		_, _ = w.Write([]byte("llo"))
	})
	stream, err := client.GetExecutionOutput(t.Context(), &millracev1.GetExecutionOutputRequest{Id: "e"})
	require.NoError(t, err)
	head, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, int32(2), head.GetAttempt())
	assert.True(t, head.GetFinal())
	var text []byte
	for err == nil {
		var piece *millracev1.GetExecutionOutputResponse
		piece, err = stream.Recv()
		text = append(text, piece.GetData()...)
	}
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "hello", string(text))

	stream, err = client.GetExecutionOutput(t.Context(), &millracev1.GetExecutionOutputRequest{Id: "e", Attempt: 9})
	require.NoError(t, err)
	_, err = stream.Recv()
	refused(t, err, codes.Unavailable, "UNAVAILABLE") // what broke off is not taken for the whole
}
