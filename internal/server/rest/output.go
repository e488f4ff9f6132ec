package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// errNoOutput: the execution has no such attempt.
var errNoOutput = errors.New("the execution has no such attempt")

const (
	attemptHeader = "Millrace-Attempt"
	finalHeader   = "Millrace-Final"
	// chunkTimeout is how long the caller may take for one chunk.
	chunkTimeout = 30 * time.Second
)

// output handles GET /v1/executions/{id}/output: the bytes of one stream as they
// were written, or, with Accept: application/json, both streams in chunks.
func (a *API) output(w http.ResponseWriter, r *http.Request) {
	if err := a.writeOutput(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) writeOutput(w http.ResponseWriter, r *http.Request) error {
	q, err := checkQuery(r, "stream", "attempt")
	if err != nil {
		return err
	}
	attempt, err := number(q, "attempt", 1, math.MaxInt32, 0)
	if err != nil {
		return err
	}
	asJSON := accepts(r, "application/json") && !accepts(r, "application/octet-stream")
	stream := executor.Stream(q.Get("stream"))
	switch stream {
	case executor.Stdout, executor.Stderr:
	case "":
		if !asJSON {
			stream = executor.Stdout
		}
	default:
		return badParameter("stream", "invalid", "must be stdout or stderr")
	}
	e, err := a.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if attempt > e.Attempt {
		return fmt.Errorf("attempt %d of %d: %w", attempt, e.Attempt, errNoOutput)
	}
	out, err := a.deps.Executions.Output(r.Context(), e.ID, attempt, stream)
	if err != nil {
		return err
	}
	sink := &outputSink{w: w, control: http.NewResponseController(w)}
	if asJSON {
		return a.outputJSON(sink, e.ID, out)
	}
	return a.outputBytes(sink, out)
}

// outputSink writes an answer of unknown length, chunk by chunk.
type outputSink struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *outputSink) begin(contentType string, out store.Output) {
	h := s.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set(attemptHeader, strconv.Itoa(out.Attempt))
	h.Set(finalHeader, strconv.FormatBool(out.Final))
	s.w.WriteHeader(http.StatusOK)
}

// write sends p. The time for an answer does not depend on how long it is.
func (s *outputSink) write(p []byte) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(chunkTimeout))
	_, err := s.w.Write(p)
	return err == nil
}

// abort breaks the connection: the answer has begun and cannot be completed, and
// the caller must not take what came for the whole.
func (a *API) abort(err error) {
	a.deps.Logger.Error("output broken off", "error", err)
	panic(http.ErrAbortHandler)
}

func (a *API) outputBytes(sink *outputSink, out store.Output) error {
	begun := false
	for chunk, err := range out.Chunks {
		switch {
		case err != nil && !begun:
			return err
		case err != nil:
			a.abort(err)
		case !begun:
			sink.begin("application/octet-stream", out)
			begun = true
		}
		if !sink.write(chunk.Data) {
			return nil
		}
	}
	if !begun {
		sink.begin("application/octet-stream", out)
	}
	return nil
}

func (a *API) outputJSON(sink *outputSink, id string, out store.Output) error {
	head, err := json.Marshal(OutputDocument{ExecutionID: id, Attempt: out.Attempt, Final: out.Final, Chunks: []OutputChunk{}})
	if err != nil {
		return err
	}
	head = head[:len(head)-len("]}")]
	begun := false
	for chunk, err := range out.Chunks {
		switch {
		case err != nil && !begun:
			return err
		case err != nil:
			a.abort(err)
		}
		text, err := json.Marshal(OutputChunk{
			Stream: string(chunk.Stream), Index: chunk.Index, Offset: chunk.Offset, Data: chunk.Data})
		if err != nil {
			return err // cannot happen: numbers, text and bytes only
		}
		before := []byte(",")
		if !begun {
			sink.begin("application/json", out)
			begun, before = true, head
		}
		if !sink.write(append(before, text...)) {
			return nil
		}
	}
	if !begun {
		sink.begin("application/json", out)
		sink.write(head)
	}
	sink.write([]byte("]}\n"))
	return nil
}
