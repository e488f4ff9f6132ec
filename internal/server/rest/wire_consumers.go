package rest

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// ConsumerList is every consumer that ever ran here, by name.
type ConsumerList struct {
	Consumers []Consumer `json:"consumers"`
}

// Consumer is how one consumer is doing in the whole installation.
type Consumer struct {
	Name  string `json:"name"`
	Group string `json:"group" doc:"The consumer group in Kafka"`
	Topic string `json:"topic" doc:"The name at the broker"`
	Kind  string `json:"kind" enum:"On,OnBatch,OnTx,OnBatchTx" doc:"OnTx and OnBatchTx consumers have their position in PostgreSQL, On and OnBatch consumers in Kafka"`
	State string `json:"state" enum:"offset_problem,stalled,unowned,unreported,paused,running,idle" doc:"The worst of its partitions"`
	// Lag is missing where a part of it is not known.
	Lag        *int64              `json:"lag,omitempty" doc:"Records that wait; absent when it cannot be told"`
	Paused     *ConsumerPause      `json:"paused,omitempty" doc:"Present while somebody wants it paused"`
	KafkaError string              `json:"kafka_error,omitempty" doc:"Why committed offsets, ends and lags are missing"`
	Partitions []ConsumerPartition `json:"partitions"`
}

// ConsumerPause is who paused a consumer, and why.
type ConsumerPause struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// ConsumerPartition is one partition as a consumer sees it. What cannot be told is
// absent.
type ConsumerPartition struct {
	Partition    int32            `json:"partition"`
	State        string           `json:"state" enum:"offset_problem,stalled,unowned,unreported,paused,running,idle"`
	Owner        *ConsumerOwner   `json:"owner,omitempty" doc:"The process that has it, or had it last"`
	Epoch        int64            `json:"epoch,omitempty" doc:"Rises with every change of the owner"`
	Position     *int64           `json:"position,omitempty" doc:"The next offset to be handled, as it stands in PostgreSQL"`
	Committed    *int64           `json:"committed,omitempty" doc:"The group's offset in Kafka"`
	End          *int64           `json:"end,omitempty" doc:"The offset behind the last record"`
	Lag          *int64           `json:"lag,omitempty"`
	Cause        *ConsumerCause   `json:"cause,omitempty" doc:"Why it does not go on"`
	Blocked      *ConsumerBlocked `json:"blocked,omitempty" doc:"The record that cannot be settled"`
	StalledSince *time.Time       `json:"stalled_since,omitempty"`
	Tries        int              `json:"tries,omitempty"`
	NextTryAt    *time.Time       `json:"next_try_at,omitempty"`
	Notice       string           `json:"notice,omitempty" doc:"What is odd although records are handled, such as an offset in Kafka that somebody has reset"`
}

// ConsumerOwner is the process that has a partition.
type ConsumerOwner struct {
	Instance string    `json:"instance"`
	SeenAt   time.Time `json:"seen_at" doc:"Its last sign of life"`
	Stale    bool      `json:"stale,omitempty" doc:"It has not reported for a while: the rest is what it said last"`
}

// ConsumerCause is why a partition does not go on.
type ConsumerCause struct {
	Class string `json:"class" enum:"message,infrastructure,handler" doc:"Whose fault it is"`
	Code  string `json:"code,omitempty" enum:"breaker_open,topic_replaced,offset_out_of_range" doc:"Present where there is a way out of its own"`
	Error string `json:"error"`
}

// ConsumerBlocked is the record that cannot be settled.
type ConsumerBlocked struct {
	Offset   int64   `json:"offset"`
	Key      *string `json:"key,omitempty" doc:"At most 1024 bytes of it"`
	KeyBytes []byte  `json:"key_bytes,omitempty" doc:"In place of key when that is no text, base64"`
}

// ConsumerReason is the body of pause, resume and retry.
type ConsumerReason struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the audit"`
}

// ConsumerDeadLetterRequest is the body of a dead letter.
type ConsumerDeadLetterRequest struct {
	Offset *int64 `json:"offset" doc:"Where the partition is stalled. If it is not, or not any more, nothing happens"`
	Reason string `json:"reason" doc:"Kept in the audit and in the dead letter" example:"the account was closed; agreed with billing"`
}

// ConsumerSeekRequest says where a position goes: exactly one of to, offset and time.
type ConsumerSeekRequest struct {
	Partition     *int32     `json:"partition,omitempty"`
	AllPartitions bool       `json:"all_partitions,omitempty"`
	To            string     `json:"to,omitempty" enum:"beginning,end"`
	Offset        *int64     `json:"offset,omitempty"`
	Time          *time.Time `json:"time,omitempty" doc:"The first record at or after it"`
	DryRun        bool       `json:"dry_run,omitempty" doc:"Say what would happen only"`
	Reason        string     `json:"reason,omitempty" doc:"Kept in the audit; required unless it is a dry run"`
}

// ConsumerAction is what an action came to.
type ConsumerAction struct {
	ID        int64  `json:"id" doc:"Of the row in consumer_actions"`
	Action    string `json:"action" enum:"pause,resume,retry,dead_letter"`
	Consumer  string `json:"consumer"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Outcome   string `json:"outcome" enum:"DONE,PENDING" doc:"PENDING: the owner of the partition has not confirmed it yet"`
	Detail    string `json:"detail,omitempty"`
}

// ConsumerSought is what a seek did, or would do.
type ConsumerSought struct {
	Consumer string         `json:"consumer"`
	Topic    string         `json:"topic"`
	Moves    []ConsumerMove `json:"moves"`
	Repeats  int64          `json:"repeats" doc:"Offsets that are passed again"`
	Skips    int64          `json:"skips" doc:"Offsets that are never passed"`
	Warnings []string       `json:"warnings,omitempty"`
	DryRun   bool           `json:"dry_run,omitempty"`
}

// ConsumerMove is what a seek does to one partition.
type ConsumerMove struct {
	Partition int32  `json:"partition"`
	From      *int64 `json:"from,omitempty"`
	To        int64  `json:"to"`
	Outcome   string `json:"outcome,omitempty" enum:"DONE,PENDING,REFUSED,EXPIRED" doc:"Absent in a dry run"`
	Detail    string `json:"detail,omitempty"`
}

func consumerListDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-consumers", Summary: "How every consumer is doing", Tags: []string{tagConsumers},
		Description: "Every consumer and partition of the whole installation, whichever process owns it.", Errors: []int{503}}
}

func consumerGetDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-consumer", Summary: "How one consumer is doing", Tags: []string{tagConsumers}, Errors: []int{400, 404, 503}}
}

// consumerActionDoc documents an action with a body of type I and an answer of type O.
func consumerActionDoc[I, O any](a *API, id, summary, description string, required bool, params ...*huma.Param) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Description: description, Tags: []string{tagConsumers},
		Parameters:  append([]*huma.Param{param("path", "name", "string", "The name of the consumer")}, params...),
		RequestBody: jsonBody(schema[I](a), required),
		Responses:   map[string]*huma.Response{"200": answer("Done", "application/json", schema[O](a), nil)},
		Errors:      []int{400, http.StatusNotFound, http.StatusConflict, 413, 415, 422, 503},
	}
}

func partitionParam() *huma.Param {
	return param("path", "partition", "integer", "The number of the partition")
}

// pendingToo adds the answer of an action whose owner has not confirmed it yet.
func pendingToo(a *API, op huma.Operation) huma.Operation {
	op.Responses["202"] = answer("The owner of the partition has not confirmed it yet", "application/json", schema[ConsumerAction](a), nil)
	return op
}

func (a *API) consumerPauseDoc() huma.Operation {
	return consumerActionDoc[ConsumerReason, ConsumerAction](a, "pause-consumer", "Pause a consumer",
		"In every process, within two seconds, over restarts, until it is resumed. What is in flight ends.", false)
}

func (a *API) consumerResumeDoc() huma.Operation {
	return consumerActionDoc[ConsumerReason, ConsumerAction](a, "resume-consumer", "Resume a consumer", "", false)
}

func (a *API) consumerRetryDoc() huma.Operation {
	return pendingToo(a, consumerActionDoc[ConsumerReason, ConsumerAction](a, "retry-consumer-partition", "Try a stalled partition again now",
		"Without waiting for next_try_at.", false, partitionParam()))
}

func (a *API) consumerDeadLetterDoc() huma.Operation {
	return pendingToo(a, consumerActionDoc[ConsumerDeadLetterRequest, ConsumerAction](a, "dead-letter-consumer-record",
		"Make the record at which a partition is stalled a dead letter",
		"That record and no other: if it succeeds first, the answer is 409 and nothing has changed.", true, partitionParam()))
}

func (a *API) consumerSeekDoc() huma.Operation {
	return consumerActionDoc[ConsumerSeekRequest, ConsumerSought](a, "seek-consumer", "Move the position of a consumer",
		"Back: records are handled again. Forwards: records are never handled. Try it with dry_run first.", true)
}
