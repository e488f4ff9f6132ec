package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// Results are the values that are too long for executions themselves;
// *results.Store implements it.
type Results interface {
	Open(ctx context.Context, ref executor.ValueReference) (io.ReadCloser, error)
}

// errNoResult: the execution has ended and returned nothing.
var errNoResult = errors.New("the execution has no result")

// resultPiece is how much of a value is read at once.
const resultPiece = 256 << 10

// result handles GET /v1/executions/{id}/result: the value that an execution
// returned, wherever it is kept.
func (a *API) result(w http.ResponseWriter, r *http.Request) {
	if err := a.writeResult(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) writeResult(w http.ResponseWriter, r *http.Request) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	e, err := a.find(r.Context(), r.PathValue("id"))
	switch {
	case err != nil:
		return err
	case !e.State.Terminal():
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, store.ErrNotEnded)
	case e.State != execution.Completed:
		return fmt.Errorf("execution %s is %s: %w", e.ID, e.State, errNoResult)
	case e.Result.ValueRef != nil:
		return a.writeKept(r.Context(), w, executor.ValueReference(*e.Result.ValueRef))
	case len(e.Result.Value) > 0:
		sink := newResultSink(w)
		sink.begin(int64(len(e.Result.Value)), "")
		sink.write(e.Result.Value)
		return nil
	}
	return fmt.Errorf("execution %s returned nothing (a program has output instead): %w", e.ID, errNoResult)
}

// writeKept streams a value. One that breaks off must not be taken for the whole,
// so the connection is broken then.
func (a *API) writeKept(ctx context.Context, w http.ResponseWriter, ref executor.ValueReference) error {
	in, err := a.deps.Results.Open(ctx, ref)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	sink := newResultSink(w)
	piece := make([]byte, resultPiece)
	for begun := false; ; {
		n, err := in.Read(piece)
		switch {
		case err != nil && !errors.Is(err, io.EOF) && !begun:
			return err
		case err != nil && !errors.Is(err, io.EOF):
			a.abort(err)
		case !begun:
			sink.begin(ref.Bytes, ref.SHA256)
			begun = true
		}
		if n > 0 && !sink.write(piece[:n]) || err != nil {
			return nil
		}
	}
}

// resultSink writes a value.
type resultSink struct{ outputSink }

func newResultSink(w http.ResponseWriter) resultSink {
	return resultSink{outputSink{w: w, control: http.NewResponseController(w)}}
}

func (s resultSink) begin(size int64, hash string) {
	h := s.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Cache-Control", "no-store")
	if hash != "" {
		h.Set("ETag", `"`+hash+`"`)
	}
	s.w.WriteHeader(http.StatusOK)
}
