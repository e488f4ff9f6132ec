package problem

import "net/http"

// Kinds returns every kind of problem that the servers answer with, for the
// documentation and for tests. Each constructor below is one row.
func Kinds() []Kind {
	return []Kind{
		MalformedJSON(), ValidationFailed(), InvalidParameter(), InvalidPageToken(), InvalidCursor(),
		BodyTooLarge(), UnsupportedMediaType(), Unauthorized(), Forbidden(), CrossOrigin(), HostNotAllowed(),
		RouteNotFound(), MethodNotAllowed(), NotAcceptable(), ExecutionNotFound(), OutputNotFound(),
		ResultNotFound(), ResultElsewhere(), InstanceNotFound(), QueryLimit(),
		OutboxEventNotFound(), OutboxEventNotBlocked(),
		IdempotencyConflict(), ExecutionAdmitted(), ExecutionEnded(), ExecutionNotEnded(), TransitionNotAllowed(), StaleAttempt(),
		ConsumerNotFound(), ConsumerPartitionNotFound(), ConsumerActionRefused(),
		DeadLetterNotFound(), DeadLetterNotOpen(), RedriveLimit(), RedriveTopicMissing(),
		DeadLetterNoEvent(), DeadLetterArchived(), DeadLetterNotArchived(), DeadLetterDeleted(), DeadLetterHeadOfLane(),
		EditInvalid(), EditConflict(), EditUnchanged(), RedriveNotFound(), RedriveState(), NothingToRedrive(), PurgeNotFound(), PurgeOver(),
		KafkaOff(), BadRequest(), VariablesTooLarge(), DefinitionInvalid(), WorkflowNotFound(), WorkflowConflict(), JobNotFound(), JobConflict(), LimitsNotFound(), PollingOff(), Overloaded(),
		HookNotFound(), HookUnauthorized(), HookUnavailable(), MalformedEvent(), MalformedForm(), MessageRefused(), RateLimited(), LimitReached(),
		TriggerNotFound(), TriggerInvalid(), TriggerChanged(), TriggerNoSchedule(), TriggerDisabled(),
		ReplayNotFound(), ReplayState(), ReplayRefused(), TooManyReplays(),
		ProjectionNotFound(), RebuildNotFound(), RebuildRefused(),
		TooManyStreams(), EventsUnavailable(), Unavailable(), ShuttingDown(), Timeout(), Cancelled(), Internal(),
	}
}

// MalformedJSON: the body is not JSON, or more than one document.
func MalformedJSON() Kind {
	return Kind{http.StatusBadRequest, "malformed_json", "The request body is not valid JSON"}
}

// ValidationFailed: the body is JSON but not a valid request.
func ValidationFailed() Kind {
	return Kind{http.StatusUnprocessableEntity, "validation_failed", "The request is not valid"}
}

// InvalidParameter: a query parameter, path segment or header is wrong.
func InvalidParameter() Kind {
	return Kind{http.StatusBadRequest, "invalid_parameter", "A parameter is not valid"}
}

// InvalidPageToken: the page token is not ours, or belongs to other filters.
func InvalidPageToken() Kind {
	return Kind{http.StatusBadRequest, "invalid_page_token", "The page token is not valid for this request"}
}

// InvalidCursor: the last event id is not one that the server gave out.
func InvalidCursor() Kind {
	return Kind{http.StatusBadRequest, "invalid_cursor", "The last event id is not valid"}
}

// BodyTooLarge: the body is longer than the server takes.
func BodyTooLarge() Kind {
	return Kind{http.StatusRequestEntityTooLarge, "body_too_large", "The request body is too large"}
}

// UnsupportedMediaType: the body is not declared as JSON.
func UnsupportedMediaType() Kind {
	return Kind{http.StatusUnsupportedMediaType, "unsupported_media_type", "The media type is not supported"}
}

// Unauthorized: no token, or one that is not known.
func Unauthorized() Kind {
	return Kind{http.StatusUnauthorized, "unauthorized", "A valid token is required"}
}

// Forbidden: the token does not have the scope that the route asks for.
func Forbidden() Kind {
	return Kind{http.StatusForbidden, "forbidden", "The token does not allow this"}
}

// CrossOrigin: a browser sent the request on behalf of another site.
func CrossOrigin() Kind {
	return Kind{http.StatusForbidden, "cross_origin", "Requests from other origins are not allowed"}
}

// HostNotAllowed: the Host header is not one that the server answers to.
func HostNotAllowed() Kind {
	return Kind{http.StatusMisdirectedRequest, "host_not_allowed", "The server does not answer to this host name"}
}

// RouteNotFound: there is nothing at this path.
func RouteNotFound() Kind {
	return Kind{http.StatusNotFound, "route_not_found", "There is nothing at this path"}
}

// MethodNotAllowed: the path exists for other methods.
func MethodNotAllowed() Kind {
	return Kind{http.StatusMethodNotAllowed, "method_not_allowed", "The method is not allowed for this path"}
}

// NotAcceptable: nothing that the server can answer fits the Accept header.
func NotAcceptable() Kind {
	return Kind{http.StatusNotAcceptable, "not_acceptable", "The answer is not available in an accepted media type"}
}

// ExecutionNotFound: there is no execution with this id.
func ExecutionNotFound() Kind {
	return Kind{http.StatusNotFound, "execution_not_found", "There is no such execution"}
}

// OutputNotFound: the execution has no such attempt.
func OutputNotFound() Kind {
	return Kind{http.StatusNotFound, "output_not_found", "There is no such output"}
}

// ResultNotFound: the execution has returned nothing, or its value is not kept any
// more.
func ResultNotFound() Kind {
	return Kind{http.StatusNotFound, "result_not_found", "There is no such result"}
}

// ResultElsewhere: the value is in a directory that this server does not have.
func ResultElsewhere() Kind {
	return Kind{http.StatusServiceUnavailable, "result_elsewhere", "The result is kept where this server cannot read it"}
}

// OutboxEventNotFound: the outbox has no event of this number.
func OutboxEventNotFound() Kind {
	return Kind{http.StatusNotFound, "outbox_event_not_found", "There is no such event in the outbox"}
}

// OutboxEventNotBlocked: the event does not hold up its aggregate.
func OutboxEventNotBlocked() Kind {
	return Kind{http.StatusConflict, "outbox_event_not_blocked", "The outbox event is not in the way"}
}

// IdempotencyConflict: the key was used for another request before.
func IdempotencyConflict() Kind {
	return Kind{http.StatusConflict, "idempotency_conflict", "The idempotency key belongs to a different request"}
}

// ExecutionAdmitted: the execution does not wait in the queue any more.
func ExecutionAdmitted() Kind {
	return Kind{http.StatusConflict, "execution_admitted", "The execution has been admitted"}
}

// ExecutionEnded: the execution is in a final state.
func ExecutionEnded() Kind {
	return Kind{http.StatusConflict, "execution_ended", "The execution has ended"}
}

// ExecutionNotEnded: the execution is still on its way.
func ExecutionNotEnded() Kind {
	return Kind{http.StatusConflict, "execution_not_ended", "The execution has not ended"}
}

// TransitionNotAllowed: the command does not fit the state of the execution.
func TransitionNotAllowed() Kind {
	return Kind{http.StatusConflict, "transition_not_allowed", "The state of the execution does not allow this"}
}

// StaleAttempt: the caller speaks for an attempt that is over.
func StaleAttempt() Kind {
	return Kind{http.StatusConflict, "stale_attempt", "The attempt is no longer the current one"}
}

// TooManyStreams: the server has as many live streams as it takes.
func TooManyStreams() Kind {
	return Kind{http.StatusServiceUnavailable, "too_many_streams", "Too many live streams are open"}
}

// EventsUnavailable: the event log cannot be read at the moment.
func EventsUnavailable() Kind {
	return Kind{http.StatusServiceUnavailable, "events_unavailable", "Live events are not available at the moment"}
}

// Unavailable: something that the server needs cannot be reached.
func Unavailable() Kind {
	return Kind{http.StatusServiceUnavailable, "unavailable", "The service is not available at the moment"}
}

// ShuttingDown: the server is about to stop.
func ShuttingDown() Kind {
	return Kind{http.StatusServiceUnavailable, "shutting_down", "The server is shutting down"}
}

// Timeout: the server could not answer in time.
func Timeout() Kind {
	return Kind{http.StatusGatewayTimeout, "timeout", "The request took too long"}
}

// Cancelled: the client went away. Nobody reads it; logs and metrics do.
func Cancelled() Kind {
	return Kind{499, "client_closed_request", "The client closed the request"}
}

// Internal: a bug, or a fault that nobody foresaw.
func Internal() Kind {
	return Kind{http.StatusInternalServerError, "internal", "Something went wrong in the server"}
}

// DeadLetterNotFound: no dead letter has this id.
func DeadLetterNotFound() Kind {
	return Kind{http.StatusNotFound, "dead_letter_not_found", "The dead letter does not exist"}
}

// DeadLetterNotOpen: the dead letter was redriven or discarded before.
func DeadLetterNotOpen() Kind {
	return Kind{http.StatusConflict, "dead_letter_not_open", "The dead letter is not open"}
}

// RedriveLimit: the event was redriven too often.
func RedriveLimit() Kind {
	return Kind{http.StatusConflict, "redrive_limit", "The dead letter was redriven too often"}
}

// RedriveTopicMissing: the topic that the record lay in is gone.
func RedriveTopicMissing() Kind {
	return Kind{http.StatusConflict, "redrive_topic_missing", "The topic of the dead letter does not exist"}
}

// InstanceNotFound: no row of a read model has this id.
func InstanceNotFound() Kind {
	return Kind{http.StatusNotFound, "instance_not_found", "There is no such instance"}
}

// QueryLimit: a query asks for more than one query may; the detail names the limit.
func QueryLimit() Kind {
	return Kind{http.StatusBadRequest, "query_limit", "The query is beyond a limit"}
}

// TriggerNotFound: no trigger has the id, or none that the token sees.
func TriggerNotFound() Kind {
	return Kind{http.StatusNotFound, "trigger_not_found", "There is no such trigger"}
}

// TriggerInvalid: the definition cannot be run, or not in place of the one that there is.
func TriggerInvalid() Kind {
	return Kind{http.StatusUnprocessableEntity, "trigger_invalid", "The trigger is not valid"}
}

// TriggerChanged: it is of another revision than the request is about.
func TriggerChanged() Kind {
	return Kind{http.StatusPreconditionFailed, "trigger_changed", "The trigger is not of that revision"}
}

// TriggerNoSchedule: the request is about triggers by time, and this is another one.
func TriggerNoSchedule() Kind {
	return Kind{http.StatusConflict, "trigger_no_schedule", "The trigger does not go by time"}
}

// TriggerDisabled: what is asked for needs a trigger that is switched on.
func TriggerDisabled() Kind {
	return Kind{http.StatusConflict, "trigger_disabled", "The trigger is disabled"}
}

// LimitNotFound: no limit of this name holds, or it has no such key.
func LimitNotFound() Kind {
	return Kind{http.StatusNotFound, "limit_not_found", "There is no such limit or key"}
}

// ConsumerNotFound: no consumer of this name ever ran here.
func ConsumerNotFound() Kind {
	return Kind{http.StatusNotFound, "consumer_not_found", "There is no such consumer"}
}

// ConsumerPartitionNotFound: the topic has no partition of this number.
func ConsumerPartitionNotFound() Kind {
	return Kind{http.StatusNotFound, "consumer_partition_not_found", "There is no such partition"}
}

// ConsumerActionRefused: the state of the consumer does not allow the action.
func ConsumerActionRefused() Kind {
	return Kind{http.StatusConflict, "consumer_action_refused", "The state of the consumer does not allow this"}
}

// DeadLetterNoEvent: the record is no event, so it has no id to replace.
func DeadLetterNoEvent() Kind {
	return Kind{http.StatusConflict, "dead_letter_no_event", "The record of the dead letter is no event"}
}

// DeadLetterArchived: the letter must be restored before anything is done with it.
func DeadLetterArchived() Kind {
	return Kind{http.StatusConflict, "dead_letter_archived", "The dead letter is archived"}
}

// DeadLetterNotArchived: there is nothing to restore.
func DeadLetterNotArchived() Kind {
	return Kind{http.StatusConflict, "dead_letter_not_archived", "The dead letter is not archived"}
}

// DeadLetterDeleted: the record is gone.
func DeadLetterDeleted() Kind {
	return Kind{http.StatusConflict, "dead_letter_deleted", "The record of the dead letter was deleted"}
}

// DeadLetterHeadOfLane: what waits for the letter must be decided about first.
func DeadLetterHeadOfLane() Kind {
	return Kind{http.StatusConflict, "dead_letter_head_of_lane", "Later events of its key wait for the dead letter"}
}

// EditInvalid: the edited record breaks its schema.
func EditInvalid() Kind {
	return Kind{http.StatusUnprocessableEntity, "edit_invalid", "The edited record is not valid"}
}

// EditConflict: somebody else edited the letter.
func EditConflict() Kind {
	return Kind{http.StatusConflict, "edit_conflict", "The dead letter was edited meanwhile"}
}

// EditUnchanged: the edit leads to the record that there is.
func EditUnchanged() Kind {
	return Kind{http.StatusUnprocessableEntity, "edit_unchanged", "The edit changes nothing"}
}

// PurgeNotFound: no purge has this id.
func PurgeNotFound() Kind {
	return Kind{http.StatusNotFound, "purge_not_found", "The purge does not exist"}
}

// PurgeOver: a purge that is done cannot be cancelled.
func PurgeOver() Kind {
	return Kind{http.StatusConflict, "purge_over", "The purge has ended"}
}

// RedriveNotFound: no redrive of many has this id.
func RedriveNotFound() Kind {
	return Kind{http.StatusNotFound, "redrive_not_found", "The redrive does not exist"}
}

// RedriveState: a redrive that has ended cannot be paused, and so on.
func RedriveState() Kind {
	return Kind{http.StatusConflict, "redrive_state", "The state of the redrive does not allow that"}
}

// NothingToRedrive: the filter selects no open letter.
func NothingToRedrive() Kind {
	return Kind{http.StatusConflict, "nothing_to_redrive", "No open dead letter is selected"}
}

// ReplayNotFound: there is no replay of that id.
func ReplayNotFound() Kind {
	return Kind{http.StatusNotFound, "replay_not_found", "There is no such replay"}
}

// ReplayState: the state of the replay does not allow what was asked for.
func ReplayState() Kind {
	return Kind{http.StatusConflict, "replay_state", "The state of the replay does not allow that"}
}

// ReplayRefused: a replay like that is not made; the faults say why.
func ReplayRefused() Kind {
	return Kind{http.StatusConflict, "replay_refused", "The replay is refused"}
}

// ProjectionNotFound: there is no projection of that name.
func ProjectionNotFound() Kind {
	return Kind{http.StatusNotFound, "projection_not_found", "There is no such projection"}
}

// RebuildNotFound: there is no rebuild of that id.
func RebuildNotFound() Kind {
	return Kind{http.StatusNotFound, "rebuild_not_found", "There is no such rebuild"}
}

// RebuildRefused: a rebuild does not begin, or not change, as things are.
func RebuildRefused() Kind {
	return Kind{http.StatusConflict, "rebuild_refused", "The rebuild is refused"}
}

// TooManyReplays: others have to end first.
func TooManyReplays() Kind {
	return Kind{http.StatusTooManyRequests, "too_many_replays", "Too many replays are open"}
}

// KafkaOff: the server runs without Kafka.
func KafkaOff() Kind {
	return Kind{http.StatusNotImplemented, "kafka_off", "This needs Kafka, and the server has none"}
}

// BadRequest: the request can never be right. It is what the contract of workflows
// answers where other routes say ValidationFailed.
func BadRequest() Kind {
	return Kind{http.StatusBadRequest, "bad_request", "The request is not valid"}
}

// DefinitionInvalid: the definition of a workflow has faults.
func DefinitionInvalid() Kind {
	return Kind{http.StatusBadRequest, "definition_invalid", "The definition has faults"}
}

// VariablesTooLarge: the variables of the instance would be longer than they may.
func VariablesTooLarge() Kind {
	return Kind{http.StatusRequestEntityTooLarge, "variables_too_large", "The variables would be too large"}
}

// WorkflowNotFound: there is no such definition, instance, step or user task.
func WorkflowNotFound() Kind {
	return Kind{http.StatusNotFound, "workflow_not_found", "There is no such instance, definition, step or task"}
}

// WorkflowConflict: the instance, step or task is not where the request belongs.
func WorkflowConflict() Kind {
	return Kind{http.StatusConflict, "workflow_conflict", "The state of the instance does not allow this"}
}

// JobNotFound: no job has this id.
func JobNotFound() Kind {
	return Kind{http.StatusNotFound, "job_not_found", "There is no such job"}
}

// JobConflict: the job has ended, or somebody else holds it.
func JobConflict() Kind {
	return Kind{http.StatusConflict, "job_conflict", "The state of the job does not allow this"}
}

// LimitsNotFound: the job type has no limits.
func LimitsNotFound() Kind {
	return Kind{http.StatusNotFound, "job_type_limits_not_found", "The job type has no limits"}
}

// PollingOff: jobs are dispatched over Kafka.
func PollingOff() Kind {
	return Kind{http.StatusGone, "polling_off", "Jobs are not polled for in this dispatch mode"}
}

// Overloaded: more requests wait than may. Nothing was done.
func Overloaded() Kind {
	return Kind{http.StatusServiceUnavailable, "overloaded", "There is too much to do at the moment"}
}

// HookNotFound: there is no webhook of this name that receives anything.
func HookNotFound() Kind {
	return Kind{http.StatusNotFound, "hook_not_found", "There is no such webhook"}
}

// HookUnauthorized: the request has not proved to come from somebody who knows a secret of
// the webhook.
func HookUnauthorized() Kind {
	return Kind{http.StatusUnauthorized, "hook_unauthorized", "The request does not prove who sends it"}
}

// HookUnavailable: the webhook cannot take the request now, and it is not the sender's fault.
func HookUnavailable() Kind {
	return Kind{http.StatusServiceUnavailable, "hook_unavailable", "The webhook cannot take this at the moment"}
}

// MalformedEvent: what says that it is a CloudEvent is none.
func MalformedEvent() Kind {
	return Kind{http.StatusBadRequest, "malformed_event", "The request is not a valid CloudEvent"}
}

// MalformedForm: the body says that it is a form, and is none.
func MalformedForm() Kind {
	return Kind{http.StatusBadRequest, "malformed_form", "The form is not well-formed"}
}

// MessageRefused: a trigger can make nothing of the message.
func MessageRefused() Kind {
	return Kind{http.StatusUnprocessableEntity, "message_refused", "Nothing can be made of the message"}
}

// RateLimited: more requests came than the rate allows.
func RateLimited() Kind {
	return Kind{http.StatusTooManyRequests, "rate_limited", "Too many requests"}
}

// LimitReached: as much of what a trigger has made is unfinished as may be.
func LimitReached() Kind {
	return Kind{http.StatusTooManyRequests, "limit_reached", "Too much of what the trigger started is unfinished"}
}
