package rest

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/topics"
)

// OutboxEvent is an event that the broker rejected and that holds up its aggregate.
type OutboxEvent struct {
	Seq           int64      `json:"seq" doc:"Names the event in the routes below"`
	EventID       string     `json:"event_id"`
	State         string     `json:"state" enum:"FAILED,WAITING"`
	AggregateType string     `json:"aggregate_type"`
	AggregateID   string     `json:"aggregate_id"`
	EventType     string     `json:"event_type"`
	Topic         string     `json:"topic" doc:"Logical name"`
	Attempts      int        `json:"attempts" doc:"How often the broker rejected it"`
	LastError     string     `json:"last_error,omitempty"`
	Behind        int64      `json:"behind" doc:"How many events of the aggregate wait for this one"`
	CreatedAt     time.Time  `json:"created_at"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty" doc:"Of a WAITING one"`
}

// OutboxList is a page of events that hold up their aggregates, the oldest first.
type OutboxList struct {
	Events        []OutboxEvent `json:"events"`
	NextPageToken string        `json:"next_page_token,omitempty" doc:"Asks for the next page; absent on the last one"`
}

// OutboxBacklog is what has not been published.
type OutboxBacklog struct {
	Pending   int64                `json:"pending" doc:"Events that are not published, the waiting ones among them"`
	Waiting   int64                `json:"waiting" doc:"Events that were rejected and are tried again"`
	Failed    int64                `json:"failed" doc:"Events that were given up and wait for somebody"`
	OldestAge topics.Duration      `json:"oldest_age" doc:"Of the oldest pending one" example:"1.5s"`
	Topics    []OutboxTopicBacklog `json:"topics"`
}

// OutboxTopicBacklog is the part of the backlog that is for one topic.
type OutboxTopicBacklog struct {
	Topic     string          `json:"topic" doc:"Logical name"`
	Pending   int64           `json:"pending"`
	Waiting   int64           `json:"waiting"`
	Failed    int64           `json:"failed"`
	OldestAge topics.Duration `json:"oldest_age" example:"1.5s"`
}

// OutboxRetryRequest is the body of a retry.
type OutboxRetryRequest struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the audit"`
}

// OutboxRetryFailedRequest is the body of a retry of all that failed.
type OutboxRetryFailedRequest struct {
	Topic  string `json:"topic,omitempty" doc:"Logical name; all topics by default"`
	Reason string `json:"reason,omitempty" doc:"Kept in the audit"`
}

// OutboxSkipRequest is the body of a skip.
type OutboxSkipRequest struct {
	Reason string `json:"reason" doc:"Kept in the audit" example:"larger than the broker takes; the owner knows"`
}

// OutboxRepublishRequest says which published events to publish again. An
// aggregate id, or a bound of the time, is required.
type OutboxRepublishRequest struct {
	AggregateType string     `json:"aggregate_type,omitempty"`
	AggregateID   string     `json:"aggregate_id,omitempty"`
	Topic         string     `json:"topic,omitempty" doc:"Logical name"`
	CreatedFrom   *time.Time `json:"created_from,omitempty" doc:"Inclusive"`
	CreatedBefore *time.Time `json:"created_before,omitempty" doc:"Exclusive"`
	DryRun        bool       `json:"dry_run,omitempty" doc:"Count only"`
	Reason        string     `json:"reason,omitempty" doc:"Kept in the audit"`
}

// OutboxChange says how many events an action was about.
type OutboxChange struct {
	Events int64 `json:"events"`
}

// OutboxRepublished says how much is, or would be, published again.
type OutboxRepublished struct {
	Events     int64 `json:"events"`
	Aggregates int64 `json:"aggregates"`
	DryRun     bool  `json:"dry_run"`
}

func outboxListDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-outbox-events", Summary: "Events that the broker rejected", Tags: []string{tagOutbox},
		Description: "The oldest first. Each holds up the later events of its aggregate, and those of no other.",
		Errors:      []int{400, 503},
	}
}

func outboxBacklogDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-outbox-backlog", Summary: "What has not been published", Tags: []string{tagOutbox}, Errors: []int{503}}
}

// outboxActionDoc documents an action with a body of type I and an answer of type O.
func outboxActionDoc[I, O any](a *API, id, summary, description string, required bool, params ...*huma.Param) huma.Operation {
	op := huma.Operation{
		OperationID: id, Summary: summary, Description: description, Tags: []string{tagOutbox}, Parameters: params,
		RequestBody: jsonBody(schema[I](a), required),
		Responses:   map[string]*huma.Response{"200": answer("Done", "application/json", schema[O](a), nil)},
		Errors:      []int{400, 413, 415, 422, 503},
	}
	if len(params) > 0 {
		op.Errors = append(op.Errors, http.StatusNotFound, http.StatusConflict)
	}
	return op
}

func seqParam() *huma.Param { return param("path", "seq", "integer", "The seq of the event") }

func (a *API) outboxRetryDoc() huma.Operation {
	return outboxActionDoc[OutboxRetryRequest, OutboxChange](a, "retry-outbox-event", "Try an event again now",
		"It gets all its attempts anew. Only an event that is listed can be retried.", false, seqParam())
}

func (a *API) outboxRetryFailedDoc() huma.Operation {
	return outboxActionDoc[OutboxRetryFailedRequest, OutboxChange](a, "retry-failed-outbox-events",
		"Try all events again that failed", "Those for one topic, if one is named.", false)
}

func (a *API) outboxSkipDoc() huma.Operation {
	return outboxActionDoc[OutboxSkipRequest, OutboxChange](a, "skip-outbox-event", "Give an event up",
		"It is never published, and its aggregate goes on behind it. Only an event that is listed can be skipped.", true, seqParam())
}

func (a *API) outboxRepublishDoc() huma.Operation {
	return outboxActionDoc[OutboxRepublishRequest, OutboxRepublished](a, "republish-outbox-events", "Publish events again",
		"Events that were published are published again as they were, with the same ids, in order per aggregate. "+
			"Consumers that applied them see duplicates. At most 200000 at a time.", true)
}
