package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/server/problem"
)

// replayedHeader marks the answer to a repetition, as everywhere in the API.
const replayedHeader = "Idempotent-Replayed"

// tryAgain is when a sender should come back whose message cannot be taken now.
const tryAgain = 5 * time.Second

// HookAnswer says what was made of a message.
type HookAnswer struct {
	// Trigger is the id of the trigger.
	Trigger string `json:"trigger" doc:"The id of the trigger" example:"orders"`
	// Status is created or duplicate.
	Status string `json:"status" enum:"created,duplicate" doc:"Whether something was made, or had been made of the same message before"`
	// Kind is execution or instance; empty where what the first message made is not known any
	// more.
	Kind string `json:"kind,omitempty" enum:"execution,instance" doc:"What was made"`
	ID   string `json:"id,omitempty" doc:"The id of what was made; of a duplicate that of the first message, where it is known"`
}

// HookBatchAnswer says what was made of a batch of events.
type HookBatchAnswer struct {
	Trigger string `json:"trigger" doc:"The id of the trigger"`
	// Accepted counts the events, Created those that were not known before.
	Accepted int          `json:"accepted" doc:"How many events were taken: all of them"`
	Created  int          `json:"created" doc:"How many of them were not known before"`
	Results  []HookAnswer `json:"results" doc:"What was made of each event, in the order of the batch"`
}

func answerOf(p *plan, o ingest.Outcome) HookAnswer {
	return HookAnswer{Trigger: p.trigger.ID, Status: string(o.Status), Kind: o.Kind, ID: o.ID}
}

// answer tells a caller what was made of its messages, or returns why nothing was.
func answer(w http.ResponseWriter, p *plan, in received, outcomes []ingest.Outcome) (string, error) {
	if !in.batch {
		return answerOne(w, p, outcomes[0])
	}
	all := HookBatchAnswer{Trigger: p.trigger.ID, Results: []HookAnswer{}}
	var faults []problem.Fault
	for i, o := range outcomes {
		if o.Status == ingest.Refused {
			r := refusalOf(o)
			faults = append(faults, problem.Fault{Pointer: "/" + strconv.Itoa(i), Code: r.Code, Message: r.Message})
			continue
		}
		all.Accepted++
		if o.Status == ingest.Created {
			all.Created++
		}
		all.Results = append(all.Results, answerOf(p, o))
	}
	if len(faults) > 0 { // an answer of 2xx would hide that something was not taken
		refused := refusedProblem(refusalOf(firstRefused(outcomes)))
		refused.Errors = faults
		refused.Detail = fmt.Sprintf("%d of %d events were refused; the others were taken", len(faults), len(outcomes))
		return resultRefused, refused
	}
	if all.Created == 0 && all.Accepted > 0 {
		w.Header().Set(replayedHeader, "true")
		return resultDuplicate, writeJSON(w, http.StatusOK, all)
	}
	return resultCreated, writeJSON(w, http.StatusAccepted, all)
}

func firstRefused(outcomes []ingest.Outcome) ingest.Outcome {
	for _, o := range outcomes {
		if o.Status == ingest.Refused {
			return o
		}
	}
	return ingest.Outcome{}
}

func answerOne(w http.ResponseWriter, p *plan, o ingest.Outcome) (string, error) {
	status, result := http.StatusAccepted, resultCreated
	switch o.Status {
	case ingest.Refused:
		return resultRefused, refusedProblem(refusalOf(o))
	case ingest.Duplicate:
		status, result = http.StatusOK, resultDuplicate
		w.Header().Set(replayedHeader, "true")
	case ingest.Created:
	}
	if o.ID != "" && o.Kind != "" {
		w.Header().Set("Location", "/v1/"+o.Kind+"s/"+o.ID)
	}
	return result, writeJSON(w, status, answerOf(p, o))
}

// refusalOf returns why a message was refused.
func refusalOf(o ingest.Outcome) *ingest.Refusal {
	if r, ok := errors.AsType[*ingest.Refusal](o.Err); ok {
		return r
	}
	return &ingest.Refusal{Code: "refused", Message: "the message was refused"}
}

// refusedProblem says why nothing was made of a message. What is not the sender's fault has a
// status with which senders come again.
func refusedProblem(r *ingest.Refusal) *problem.Problem {
	fault := problem.Fault{Code: r.Code, Message: r.Message}
	switch r.Code {
	case "not_json":
		return problem.MalformedJSON().With(r.Message, fault)
	case "too_large":
		return problem.BodyTooLarge().With(r.Message, fault)
	case "limit_reached":
		p := problem.LimitReached().With(r.Message, fault)
		p.RetryAfter = tryAgain
		return p
	case "unknown_workflow":
		p := problem.HookUnavailable().With(r.Message, fault)
		p.RetryAfter = time.Minute
		return p
	}
	return problem.MessageRefused().With(r.Message, fault)
}

// blocked says why a request was not, or not wholly, taken.
func blocked(in received, s settled) (string, error) {
	b, ok := errors.AsType[*ingest.BlockedError](s.err)
	if !ok {
		return resultError, s.err
	}
	detail := b.Cause.Message
	if in.batch {
		detail = fmt.Sprintf("%d of %d events were taken, send the batch again: %s", len(s.outcomes), len(in.messages), detail)
	}
	p := problem.HookUnavailable().With(detail, problem.Fault{Code: b.Cause.Code, Message: b.Cause.Message, Hint: b.Cause.Hint})
	p.RetryAfter = tryAgain
	return resultBlocked, p
}

func writeJSON(w http.ResponseWriter, status int, body any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	writeBytes(w, status, "application/json", buf.Bytes())
	return nil
}

func writeText(w http.ResponseWriter, text string) {
	writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
}

func writeBytes(w http.ResponseWriter, status int, media string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // plain text or JSON, and declared so; the caller may be gone: nobody to tell
}
