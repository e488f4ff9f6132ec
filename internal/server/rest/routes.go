package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/internal/server/problem"
)

// route is one row of the table of routes.
type route struct {
	method, path string
	// scope is what the route asks for. There is no default: see register.
	scope auth.Scope
	// stream marks routes that are not bounded by the request timeout.
	stream bool
	// contract marks routes of the contract of package workflow.v1, whose problems speak
	// its words too.
	contract bool
	// kafka marks routes that are of no use without it: what they take would never be
	// done, and what they show is not known.
	kafka bool
	// page, if set, answers browsers that ask for a page instead of data. It needs no
	// token.
	page http.HandlerFunc
	// op documents the route. Method, path and security are filled in.
	op huma.Operation
	// Exactly one of the two is set: a plain handler, or a function that registers
	// a typed one with huma.
	handler http.HandlerFunc
	typed   func(huma.API, huma.Operation)
}

func (r route) pattern() string { return r.method + " " + r.path }

const (
	tagExecutions  = "executions"
	tagDefinitions = "definitions"
	tagInstances   = "instances"
	tagUserTasks   = "user-tasks"
	tagJobs        = "jobs"
	tagQueue       = "queue"
	tagDeadLetters = "dead-letters"
	tagOutbox      = "outbox"
	tagConsumers   = "consumers"
	tagEvents      = "events"
	tagLimits      = "limits"
	tagTriggers    = "triggers"
	tagDataIndex   = "data-index"
	tagGraphQL     = "graphql"
	tagReplays     = "replays"
	tagProjections = "projections"
	tagHooks       = "webhooks"
	tagPlatform    = "platform"
)

// routes returns the whole API.
func (a *API) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return []route{
		{method: post, path: "/v1/executions", kafka: true, scope: auth.Write, op: a.submitDoc(), handler: a.submit},
		{method: post, path: "/v1/executions:batch", kafka: true, scope: auth.Write, op: a.batchDoc(), handler: a.submitBatch},
		{method: get, path: "/v1/executions", scope: auth.Read, op: listDoc(), typed: typed(a, a.list)},
		{method: get, path: "/v1/executions/statistics", scope: auth.Read, op: statisticsDoc("get-execution-statistics", "Numbers of executions", tagExecutions), typed: typed(a, a.executionStatistics)},
		{method: post, path: "/v1/definitions", scope: auth.Write, contract: true, op: a.putDefinitionDoc(), handler: a.putDefinition},
		{method: get, path: "/v1/definitions", scope: auth.Read, contract: true, op: definitionsDoc(), typed: typed(a, a.definitions)},
		{method: post, path: "/v1/definitions/validate", scope: auth.Read, contract: true, op: a.validateDefinitionDoc(), handler: a.validateDefinition},
		{method: get, path: "/v1/definitions/{id}", scope: auth.Read, contract: true, op: a.definitionDoc(), handler: a.definition},
		{method: get, path: "/v1/definitions/{id}/versions", scope: auth.Read, contract: true, op: definitionVersionsDoc(), typed: typed(a, a.definitionVersions)},
		{method: get, path: "/v1/definitions/{id}/versions/{version}", scope: auth.Read, contract: true, op: a.definitionVersionDoc(), handler: a.definition},
		{method: get, path: "/v1/definitions/{id}/graph", scope: auth.Read, contract: true, op: definitionGraphDoc(), handler: a.definitionGraph},
		{method: post, path: "/v1/instances", scope: auth.Write, contract: true, op: a.startInstanceDoc(), handler: a.startInstance},
		{method: post, path: "/v1/instances:batch", scope: auth.Write, contract: true, op: a.startInstancesDoc(), handler: a.startInstances},
		{method: post, path: "/v1/definitions/{id}/instances", scope: auth.Write, contract: true, op: a.startInstanceOfDoc(), handler: a.startInstanceOf},
		{method: get, path: "/v1/instances", scope: auth.Read, contract: true, op: instancesDoc(), typed: typed(a, a.instances)},
		{method: get, path: "/v1/instances/{id}", scope: auth.Read, contract: true, stream: true, op: a.instanceDoc(), handler: a.instance},
		{method: get, path: "/v1/instances/{id}/history", scope: auth.Read, contract: true, op: instanceHistoryDoc(), typed: typed(a, a.instanceHistory)},
		{method: get, path: "/v1/instances/{id}/audit", scope: auth.Read, contract: true, op: instanceAuditDoc(), typed: typed(a, a.instanceAudit)},
		{method: post, path: "/v1/instances/{id}/cancel", scope: auth.Write, contract: true, op: a.instanceActionDoc(cancelAction()), handler: a.instanceAction(a.cancelInstance)},
		{method: post, path: "/v1/instances/{id}/suspend", scope: auth.Write, contract: true, op: a.instanceActionDoc(suspendAction()), handler: a.instanceAction(a.suspendInstance)},
		{method: post, path: "/v1/instances/{id}/resume", scope: auth.Write, contract: true, op: a.instanceActionDoc(resumeAction()), handler: a.instanceAction(a.resumeInstance)},
		{method: post, path: "/v1/instances/{id}/retry", scope: auth.Write, contract: true, op: a.instanceActionDoc(retryAction()), handler: a.instanceAction(a.retryInstance)},
		{method: post, path: "/v1/instances/{id}/compensate", scope: auth.Write, contract: true, op: a.instanceActionDoc(compensateAction()), handler: a.instanceAction(a.compensateInstance)},
		{method: post, path: "/v1/instances/{id}/signals/{step}", scope: auth.Write, contract: true, op: a.signalDoc(), handler: a.signalInstance},
		{method: post, path: "/v1/signals", scope: auth.Write, contract: true, op: a.correlateDoc(), handler: a.correlate},
		{method: get, path: "/v1/user-tasks", scope: auth.Read, contract: true, op: userTasksDoc(), typed: typed(a, a.userTasks)},
		{method: post, path: "/v1/user-tasks/{id}/complete", scope: auth.Write, contract: true, op: a.completeUserTaskByIDDoc(), handler: a.completeUserTaskByID},
		{method: post, path: "/v1/instances/{id}/user-tasks/{step}/complete", scope: auth.Write, contract: true, op: a.completeUserTaskDoc(), handler: a.completeUserTask},
		{method: post, path: "/v1/instances/{id}/user-tasks/{step}/claim", scope: auth.Write, contract: true, op: a.claimDoc(), handler: a.userTaskClaim(a.claimUserTask)},
		{method: post, path: "/v1/instances/{id}/user-tasks/{step}/unclaim", scope: auth.Write, contract: true, op: a.unclaimDoc(), handler: a.userTaskClaim(a.unclaimUserTask)},
		{method: post, path: "/v1/jobs/poll", scope: auth.Write, contract: true, stream: true, op: a.pollJobsDoc(), handler: a.pollJobs},
		{method: post, path: "/v1/jobs/complete", scope: auth.Write, contract: true, op: a.completeJobsDoc(), handler: a.completeJobs},
		{method: post, path: "/v1/jobs/fail", scope: auth.Write, contract: true, op: a.failJobsDoc(), handler: a.failJobs},
		{method: post, path: "/v1/jobs/heartbeat", scope: auth.Write, contract: true, op: a.heartbeatJobsDoc(), handler: a.heartbeatJobs},
		{method: post, path: "/v1/jobs/{id}/complete", scope: auth.Write, contract: true, op: a.completeJobDoc(), handler: jobReport(a, a.completeJob)},
		{method: post, path: "/v1/jobs/{id}/fail", scope: auth.Write, contract: true, op: a.failJobDoc(), handler: jobReport(a, a.failJob)},
		{method: post, path: "/v1/jobs/{id}/heartbeat", scope: auth.Write, contract: true, op: a.heartbeatJobDoc(), handler: jobReport(a, a.heartbeatJob)},
		{method: get, path: "/v1/jobs", scope: auth.Read, contract: true, op: jobsDoc(), typed: typed(a, a.jobs)},
		{method: get, path: "/v1/dispatch", scope: auth.Read, op: dispatchDoc(), typed: typed(a, a.dispatch)},
		{method: get, path: "/v1/job-types", scope: auth.Read, op: jobTypesDoc(), typed: typed(a, a.jobTypes)},
		{method: get, path: "/v1/job-types/{type}/limits", scope: auth.Read, op: jobTypeLimitsDoc(), typed: typed(a, a.jobTypeLimits)},
		{method: http.MethodPut, path: "/v1/job-types/{type}/limits", scope: auth.Admin, op: a.setJobTypeLimitsDoc(), handler: a.setJobTypeLimits},
		{method: http.MethodDelete, path: "/v1/job-types/{type}/limits", scope: auth.Admin, op: unsetJobTypeLimitsDoc(), handler: a.unsetJobTypeLimits},
		{method: get, path: "/v1/jobs/{id}", scope: auth.Read, contract: true, op: jobDoc(), typed: typed(a, a.job)},
		{method: get, path: "/v1/workflow-instances", scope: auth.Read, op: rowsDoc("list-workflow-instances", "List workflow instances, newest first"), typed: typed(a, a.listWorkflows)},
		{method: get, path: "/v1/workflow-instances/statistics", scope: auth.Read, op: statisticsDoc("get-workflow-instance-statistics", "Numbers of workflow instances", tagDataIndex), typed: typed(a, a.workflowStatistics)},
		{method: get, path: "/v1/workflow-instances/{id}", scope: auth.Read, op: rowDoc("get-workflow-instance", "Get a workflow instance"), typed: typed(a, a.getWorkflow)},
		{method: get, path: "/v1/workflow-instances/{id}/tasks", scope: auth.Read, op: rowsDoc("list-tasks-of-workflow-instance", "List the tasks of a workflow instance, in the order of their start"), typed: typed(a, a.listTasksOf)},
		{method: get, path: "/v1/task-instances", scope: auth.Read, op: rowsDoc("list-task-instances", "List task instances, newest first"), typed: typed(a, a.listTasks)},
		{method: get, path: "/v1/task-instances/statistics", scope: auth.Read, op: statisticsDoc("get-task-instance-statistics", "Numbers of task instances", tagDataIndex), typed: typed(a, a.taskStatistics)},
		{method: get, path: "/v1/task-instances/{id}", scope: auth.Read, op: rowDoc("get-task-instance", "Get a task instance"), typed: typed(a, a.getTask)},
		{method: get, path: "/v1/pods", scope: auth.Read, op: rowsDoc("list-pods", "List pods, newest first"), typed: typed(a, a.listPods)},
		{method: get, path: "/v1/pods/{id}", scope: auth.Read, op: rowDoc("get-pod", "Get a pod"), typed: typed(a, a.getPod)},
		{method: get, path: "/v1/sagas", scope: auth.Read, op: rowsDoc("list-sagas", "List sagas, newest first"), typed: typed(a, a.listSagas)},
		{method: get, path: "/v1/sagas/{id}", scope: auth.Read, op: rowDoc("get-saga", "Get a saga"), typed: typed(a, a.getSaga)},
		{method: post, path: "/v1/sagas", scope: auth.Write, op: a.startSagaDoc(), handler: a.startSaga},
		{method: get, path: "/v1/sagas/{id}/timeline", scope: auth.Read, op: sagaTimelineDoc(), typed: typed(a, a.sagaTimeline)},
		{method: post, path: "/v1/sagas/{id}/resolve", scope: auth.Admin, op: a.sagaDecisionDoc("resolve", "End a saga that needs attention as it is",
			"What is done and not undone stays.", members{"reason": "the airline sent a voucher"}), handler: a.decideSaga(plainDecision(a.resolveSaga))},
		{method: post, path: "/v1/sagas/{id}/skip", scope: auth.Admin, op: a.sagaDecisionDoc("skip", "Take the compensation that failed for done",
			"The ones before it go on.", members{"reason": "refunded by hand"}), handler: a.decideSaga(plainDecision(a.skipSaga))},
		{method: post, path: "/v1/sagas/{id}/retry", scope: auth.Admin, op: a.sagaDecisionDoc("retry", "Attempt the compensation again, or go on from a step",
			"Without a step the compensation that failed is attempted again, or the step that failed a saga with nothing to undo. With one the saga "+
				"takes up its steps from there.", members{"reason": "the bank is back", "step": "pay"}), handler: a.decideSaga(a.retrySaga)},
		{method: post, path: "/v1/sagas/{id}/compensate", scope: auth.Admin, op: a.sagaDecisionDoc("compensate", "Undo what a saga has done",
			"Whatever its status: one that runs is given up, one that has completed is undone.", members{"reason": "sold twice"}), handler: a.decideSaga(plainDecision(a.compensateSaga))},
		{method: get, path: "/v1/executions/{id}", scope: auth.Read, op: getDoc(), typed: typed(a, a.get)},
		{method: http.MethodPatch, path: "/v1/executions/{id}", scope: auth.Write, op: a.reprioritizeDoc(), handler: a.reprioritize},
		{method: post, path: "/v1/executions/{id}/cancel", scope: auth.Write, op: a.cancelDoc(), handler: a.cancel},
		{method: post, path: "/v1/executions/{id}/rerun", kafka: true, scope: auth.Write, op: a.rerunDoc(), handler: a.rerun},
		{method: get, path: "/v1/executions/{id}/explain", scope: auth.Read, op: explainDoc(), typed: typed(a, a.explain)},
		{method: post, path: "/v1/executions:rerun", kafka: true, scope: auth.Write, op: a.rerunManyDoc(), handler: a.rerunMany},
		{method: get, path: "/v1/executions/{id}/events", kafka: true, scope: auth.Read, stream: true, op: a.historyDoc(), handler: a.events},
		{method: get, path: "/v1/executions/{id}/result", scope: auth.Read, stream: true, op: a.resultDoc(), handler: a.result},
		{method: get, path: "/v1/executions/{id}/output", scope: auth.Read, stream: true, op: a.outputDoc(), handler: a.output},
		{method: get, path: "/v1/events", kafka: true, scope: auth.Read, stream: true, op: a.liveDoc(), handler: a.liveEvents},
		{method: get, path: "/v1/queue", scope: auth.Read, op: queueDoc(), typed: typed(a, a.queue)},
		{method: get, path: "/v1/workers", scope: auth.Read, op: workersDoc(), typed: typed(a, a.workers)},
		{method: get, path: "/v1/queue/holds", scope: auth.Read, op: listHoldsDoc(), typed: typed(a, a.listHolds)},
		{method: post, path: "/v1/queue/holds", scope: auth.Admin, op: a.holdDoc(), handler: a.hold},
		{method: http.MethodDelete, path: "/v1/queue/holds", scope: auth.Admin, op: a.resumeDoc(), handler: a.resume},
		{method: get, path: "/v1/dead-letters", scope: auth.Read, op: listLettersDoc(), typed: typed(a, a.listLetters)},
		{method: get, path: "/v1/dead-letters/groups", scope: auth.Read, op: groupLettersDoc(), typed: typed(a, a.groupLetters)},
		{method: get, path: "/v1/dead-letters/lanes", scope: auth.Read, op: listLanesDoc(), typed: typed(a, a.listLanes)},
		{method: get, path: "/v1/dead-letters/{id}", scope: auth.Read, op: getLetterDoc(), typed: typed(a, a.getLetter)},
		{method: post, path: "/v1/dead-letters/{id}/redrive", kafka: true, scope: auth.Admin, op: a.redriveLetterDoc(), handler: letterAction(a, true, a.redriveLetter)},
		{method: post, path: "/v1/dead-letters/{id}/discard", scope: auth.Admin, op: a.discardDoc(), handler: letterAction(a, false, a.discardLetter)},
		{method: post, path: "/v1/dead-letters/{id}/edit", scope: auth.Admin, op: a.editDoc(), handler: letterAction(a, false, a.editLetter)},
		{method: post, path: "/v1/dead-letters:redrive", kafka: true, scope: auth.Admin, op: a.redriveDoc(), handler: letterAction(a, false, a.redriveLetters)},
		{method: post, path: "/v1/dead-letters:archive", scope: auth.Admin, op: a.archiveDoc(), handler: letterAction(a, false, a.archiveLetters)},
		{method: post, path: "/v1/dead-letters:restore", scope: auth.Admin, op: a.restoreDoc(), handler: letterAction(a, false, a.restoreLetters)},
		{method: post, path: "/v1/dead-letters:delete", scope: auth.Admin, op: a.deleteDoc(), handler: letterAction(a, false, a.deleteLetters)},
		{method: get, path: "/v1/dead-letter-redrives", scope: auth.Read, op: listRedrivesDoc(), typed: typed(a, a.listRedrives)},
		{method: get, path: "/v1/dead-letter-redrives/{id}", scope: auth.Read, op: getRedriveDoc(), typed: typed(a, a.getRedrive)},
		{method: get, path: "/v1/dead-letter-redrives/{id}/letters", scope: auth.Read, op: redriveLettersDoc(), typed: typed(a, a.listRedriveLetters)},
		{method: post, path: "/v1/dead-letter-redrives/{id}/pause", scope: auth.Admin, op: a.controlRedriveDoc("pause", "Let a redrive wait"),
			handler: a.controlRedrive(DeadLetters.Pause)},
		{method: post, path: "/v1/dead-letter-redrives/{id}/resume", scope: auth.Admin, op: a.controlRedriveDoc("resume", "Let a redrive go on"),
			handler: a.controlRedrive(DeadLetters.Resume)},
		{method: post, path: "/v1/dead-letter-redrives/{id}/cancel", scope: auth.Admin, op: a.controlRedriveDoc("cancel", "End a redrive"),
			handler: a.controlRedrive(DeadLetters.Cancel)},
		{method: get, path: "/v1/data-index/placeholders", scope: auth.Read, op: listPlaceholdersDoc(), typed: typed(a, a.listPlaceholders)},
		{method: get, path: "/v1/replays", scope: auth.Read, op: listReplaysDoc(), typed: typed(a, a.listReplays)},
		{method: post, path: "/v1/replays", kafka: true, scope: auth.Admin, op: a.createReplayDoc(), handler: a.createReplay},
		{method: get, path: "/v1/replays/{id}", scope: auth.Read, op: getReplayDoc(), typed: typed(a, a.getReplay)},
		{method: http.MethodPatch, path: "/v1/replays/{id}", scope: auth.Admin, op: a.rateReplayDoc(), handler: changeReplay(a, false, a.rateReplay)},
		{method: post, path: "/v1/replays/{id}/pause", scope: auth.Admin, op: a.controlReplayDoc("pause", "Let a replay wait"), handler: a.controlReplay(Replays.Pause)},
		{method: post, path: "/v1/replays/{id}/resume", scope: auth.Admin, op: a.controlReplayDoc("resume", "Let a replay go on"), handler: a.controlReplay(Replays.Resume)},
		{method: post, path: "/v1/replays/{id}/cancel", scope: auth.Admin, op: a.controlReplayDoc("cancel", "End a replay"), handler: a.controlReplay(Replays.Cancel)},
		{method: get, path: "/v1/projections", scope: auth.Read, op: listProjectionsDoc(), typed: typed(a, a.listProjections)},
		{method: get, path: "/v1/projections/{name}", scope: auth.Read, op: getProjectionDoc(), typed: typed(a, a.getProjection)},
		{method: get, path: "/v1/projections/{name}/rebuilds", scope: auth.Read, op: listRebuildsDoc(), typed: typed(a, a.listRebuilds)},
		{method: post, path: "/v1/projections/{name}/rebuilds", kafka: true, scope: auth.Admin, op: a.createRebuildDoc(), handler: a.createRebuild},
		{method: get, path: "/v1/projections/{name}/rebuilds/{id}", scope: auth.Read, op: getRebuildDoc(), typed: typed(a, a.getRebuild)},
		{method: get, path: "/v1/projections/{name}/rebuilds/{id}/differences", scope: auth.Read, op: listDifferencesDoc(), typed: typed(a, a.listDifferences)},
		{method: post, path: "/v1/projections/{name}/rebuilds/{id}/pause", scope: auth.Admin, op: a.controlRebuildDoc("pause", "Let a rebuild wait"), handler: a.controlRebuild(Rebuilds.Pause)},
		{method: post, path: "/v1/projections/{name}/rebuilds/{id}/resume", scope: auth.Admin, op: a.controlRebuildDoc("resume", "Let a rebuild go on"), handler: a.controlRebuild(Rebuilds.Resume)},
		{method: post, path: "/v1/projections/{name}/rebuilds/{id}/cancel", scope: auth.Admin, op: a.controlRebuildDoc("cancel", "End a rebuild; the tables are as they were"), handler: a.controlRebuild(Rebuilds.Cancel)},
		{method: get, path: "/v1/topics", kafka: true, scope: auth.Read, op: topicsDoc(), typed: typed(a, a.topics)},
		{method: get, path: "/v1/outbox/events", scope: auth.Read, op: outboxListDoc(), typed: typed(a, a.outboxList)},
		{method: get, path: "/v1/outbox/backlog", scope: auth.Read, op: outboxBacklogDoc(), typed: typed(a, a.outboxBacklog)},
		{method: post, path: "/v1/outbox/events/{seq}/retry", scope: auth.Admin, op: a.outboxRetryDoc(), handler: outboxAction(a, a.outboxRetry)},
		{method: post, path: "/v1/outbox/events/{seq}/skip", scope: auth.Admin, op: a.outboxSkipDoc(), handler: outboxAction(a, a.outboxSkip)},
		{method: post, path: "/v1/outbox/retry", scope: auth.Admin, op: a.outboxRetryFailedDoc(), handler: outboxAction(a, a.outboxRetryFailed)},
		{method: post, path: "/v1/outbox/republish", kafka: true, scope: auth.Admin, op: a.outboxRepublishDoc(), handler: outboxAction(a, a.outboxRepublish)},
		{method: get, path: "/v1/consumers", kafka: true, scope: auth.Read, op: consumerListDoc(), typed: typed(a, a.consumerList)},
		{method: get, path: "/v1/consumers/{name}", kafka: true, scope: auth.Read, op: consumerGetDoc(), typed: typed(a, a.consumerGet)},
		{method: post, path: "/v1/consumers/{name}/pause", scope: auth.Admin, op: a.consumerPauseDoc(), handler: consumerAction(a, a.consumerPause)},
		{method: post, path: "/v1/consumers/{name}/resume", scope: auth.Admin, op: a.consumerResumeDoc(), handler: consumerAction(a, a.consumerResume)},
		{method: post, path: "/v1/consumers/{name}/seek", kafka: true, scope: auth.Admin, op: a.consumerSeekDoc(), handler: consumerAction(a, a.consumerSeek)},
		{method: post, path: "/v1/consumers/{name}/partitions/{partition}/retry", scope: auth.Admin, op: a.consumerRetryDoc(), handler: consumerAction(a, a.consumerRetry)},
		{method: post, path: "/v1/consumers/{name}/partitions/{partition}/dead-letter", scope: auth.Admin, op: a.consumerDeadLetterDoc(), handler: consumerAction(a, a.consumerDeadLetter)},
		{method: get, path: "/v1/limits", scope: auth.Read, op: listLimitsDoc(), typed: typed(a, a.listLimits)},
		{method: get, path: "/v1/limits/{name}", scope: auth.Read, op: getLimitDoc(), typed: typed(a, a.getLimit)},
		{method: get, path: "/v1/limits/{name}/keys", scope: auth.Read, op: limitKeysDoc(), typed: typed(a, a.limitKeys)},
		{method: post, path: "/v1/limits/{name}/reset", scope: auth.Admin, op: a.resetLimitDoc(), handler: a.resetLimit},
		{method: get, path: "/v1/triggers", scope: auth.Read, op: listTriggersDoc(), typed: typed(a, a.listTriggers)},
		{method: post, path: "/v1/triggers/validate", scope: auth.Read, op: a.validateTriggerDoc(), handler: a.validateTrigger},
		{method: get, path: "/v1/triggers/{id}", scope: auth.Read, op: getTriggerDoc(), typed: typed(a, a.getTrigger)},
		{method: http.MethodPut, path: "/v1/triggers/{id}", scope: auth.Admin, op: a.putTriggerDoc(), handler: a.putTrigger},
		{method: http.MethodDelete, path: "/v1/triggers/{id}", scope: auth.Admin, op: a.changeTriggerDoc("delete-trigger", "Delete a trigger",
			"What it has started goes on. Its name is free, and what is applied under it is another trigger.", false), handler: a.deleteTrigger()},
		{method: get, path: "/v1/triggers/{id}/status", scope: auth.Read, op: triggerStatusDoc(), typed: typed(a, a.triggerStatus)},
		{method: post, path: "/v1/triggers/{id}/enable", scope: auth.Admin, op: a.changeTriggerDoc("enable-trigger", "Switch a trigger on",
			"A Kafka trigger goes on where it was.", true), handler: a.switchTrigger(true)},
		{method: post, path: "/v1/triggers/{id}/disable", scope: auth.Admin, op: a.changeTriggerDoc("disable-trigger", "Switch a trigger off",
			"It receives nothing until it is switched on. What it has started goes on.", false), handler: a.switchTrigger(false)},
		{method: get, path: "/v1/triggers/{id}/firings", scope: auth.Read, op: firingsDoc(), typed: typed(a, a.firings)},
		{method: get, path: "/v1/triggers/{id}/next", scope: auth.Read, op: nextTimesDoc(), typed: typed(a, a.nextTimes)},
		{method: post, path: "/v1/triggers/{id}/fire", scope: auth.Write, op: a.fireTriggerDoc(), handler: a.fireTrigger},
		{method: get, path: "/graphql", scope: auth.Read, stream: true, op: graphqlGetDoc(), handler: a.deps.GraphQL.Get, page: a.deps.GraphQL.Page},
		{method: post, path: "/graphql", scope: auth.Read, stream: true, op: a.graphqlPostDoc(), handler: a.deps.GraphQL.Post},
		{method: post, path: "/v1/purges", scope: auth.Admin, op: a.createPurgeDoc(), handler: a.createPurge},
		{method: get, path: "/v1/purges", scope: auth.Read, op: listPurgesDoc(), typed: typed(a, a.listPurges)},
		{method: get, path: "/v1/purges/{id}", scope: auth.Read, op: getPurgeDoc(), typed: typed(a, a.getPurge)},
		{method: post, path: "/v1/purges/{id}/cancel", scope: auth.Admin, op: a.cancelPurgeDoc(), handler: a.cancelPurge},
		{method: post, path: "/hooks/{id}", scope: auth.Open, op: a.hookDoc(), handler: a.hook},
		{method: get, path: "/livez", scope: auth.Open, op: healthDoc("livez", "Is the process alive?"), handler: a.deps.Health.Live},
		{method: get, path: "/healthz", scope: auth.Open, op: healthDoc("healthz", "The same as /livez"), handler: a.deps.Health.Live},
		{method: get, path: "/readyz", scope: auth.Open, op: a.readyDoc(), handler: a.deps.Health.Ready},
		{method: get, path: "/openapi.json", scope: auth.Open, op: documentDoc(), handler: a.serveDocument},
		{method: get, path: "/docs", scope: auth.Open, op: docsDoc(), handler: a.docs()},
	}
}

// register adds a route to the mux and to the document.
func (a *API) register(r route) error {
	if r.scope == "" {
		return fmt.Errorf("route %s declares no scope", r.pattern())
	}
	op := r.op
	op.Method, op.Path = r.method, r.path
	if r.scope != auth.Open {
		op.Security = []map[string][]string{{"token": {string(r.scope)}}}
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds the scope `" + string(r.scope) + "`.")
	}
	a.documentErrors(&op, r.scope)
	if r.typed != nil {
		r.typed(a.huma, op)
		return nil
	}
	a.huma.OpenAPI().AddOperation(&op)
	routeMux{a, []route{r}}.HandleFunc(r.pattern(), r.handler)
	return nil
}

// typed makes a function that registers a handler with huma. Errors go through
// the table of errors.
func typed[I, O any](a *API, handle func(context.Context, *I) (*O, error)) func(huma.API, huma.Operation) {
	return func(api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := handle(ctx, in)
			if err != nil {
				return nil, a.problem(ctx, err)
			}
			return out, nil
		})
	}
}

// routeMux is the mux as huma sees it: every pattern must be one of the table,
// and gets the check of its scope and its time limit.
type routeMux struct {
	api    *API
	routes []route
}

// HandleFunc implements humago.Mux.
func (m routeMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	for _, r := range m.routes {
		if r.pattern() != pattern {
			continue
		}
		h := http.Handler(http.HandlerFunc(handler))
		if !r.stream {
			h = m.api.limitTime(h)
		}
		if r.kafka && m.api.config.WithoutKafka {
			h = http.HandlerFunc(m.api.refuseWithoutKafka)
		}
		h = m.api.deps.Guard.Require(r.scope, m.api.fail, h)
		if r.contract {
			h = inContract(h)
		}
		m.api.mux.Handle(pattern, withPage(r.page, h))
		return
	}
	panic("rest: route " + pattern + " is not in the table")
}

func (a *API) refuseWithoutKafka(w http.ResponseWriter, r *http.Request) {
	a.fail(w, r, problem.KafkaOff().With("the server was started without kafka.brokers, with which it only runs workflows"))
}

// inContract has the problems of a route speak the words of the contract of workflows.
func inContract(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(problem.WithContract(r.Context())))
	})
}

// withPage lets browsers have a page where others have data.
func withPage(page http.HandlerFunc, data http.Handler) http.Handler {
	if page == nil {
		return data
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if graphql.WantsPage(r) {
			page(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// ServeHTTP implements humago.Mux.
func (m routeMux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.api.mux.ServeHTTP(w, r) }

func (a *API) limitTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), a.config.RequestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
