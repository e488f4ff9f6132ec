package rest

import (
	"github.com/danielgtaylor/huma/v2"
)

// exampleBody is the body of a request, with an example as it travels.
func exampleBody(s *huma.Schema, required bool, example any) *huma.RequestBody {
	body := jsonBody(s, required)
	body.Content["application/json"].Example = example
	return body
}

// exampled is an answer with an example.
func exampled(description string, s *huma.Schema, example any) *huma.Response {
	r := answer(description, "application/json", s, nil)
	r.Content["application/json"].Example = example
	return r
}

func done(description string) map[string]*huma.Response {
	return map[string]*huma.Response{"204": {Description: description}}
}

func instanceParam() *huma.Param { return param("path", "id", "string", "The id of the instance") }

func stepParam(description string) *huma.Param { return param("path", "step", "string", description) }

type members = map[string]any

func exampleInstance() members {
	return members{
		"id": "0198c0de-0000-7000-8000-000000000001", "definitionId": "LOS::loan-application-full", "definitionVersion": 1, "status": "ACTIVE",
		"currentStepIds": []string{"validate-application"}, "variables": members{"loanAmount": 200000000},
		"startedAt": "2026-01-02T15:04:05.000001Z", "businessKey": "APP-20240417-001", "kind": "workflow", "version": 1, "priority": 3,
	}
}

func (a *API) startInstanceDoc() huma.Operation {
	s := schema[WorkflowInstanceSummary](a)
	return huma.Operation{
		OperationID: "start-instance", Summary: "Start an instance of a workflow", Tags: []string{tagInstances},
		Description: "Answered once it is stored, and led as far as it goes without waiting. With an id, or under an Idempotency-Key, " +
			"the call can be repeated: it gives the same instance, as it is by then.",
		Parameters: []*huma.Param{keyParam()},
		RequestBody: exampleBody(schema[StartInstanceRequest](a), true, members{
			"definitionId": "LOS::loan-application-full", "variables": members{"applicantId": "APP-20240417-001", "loanAmount": 200000000},
			"businessKey": "APP-20240417-001"}),
		Responses: map[string]*huma.Response{"201": exampled("Started, or started before under this id or key", s, exampleInstance())},
		Errors:    []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) startInstanceOfDoc() huma.Operation {
	op := a.startInstanceDoc()
	op.OperationID, op.Summary = "start-instance-of-definition", "Start an instance of this workflow"
	op.Description = "The same as POST /v1/instances, with the definition in the path."
	op.Parameters = append([]*huma.Param{param("path", "id", "string", "The id of the definition")}, op.Parameters...)
	op.RequestBody = exampleBody(schema[StartInstanceRequest](a), false, members{"variables": members{"name": "Alice"}})
	return op
}

func (a *API) startInstancesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "start-instances", Summary: "Start up to 1000 instances", Tags: []string{tagInstances},
		Description: "Each request is judged for itself: the answer has one outcome per request, in order. Those that are valid share " +
			"transactions. The body may be 16 times as long as for a single start.",
		RequestBody: exampleBody(schema[StartInstancesRequest](a), true, members{"instances": []members{
			{"definitionId": "greet-workflow", "variables": members{"name": "Alice"}}, {"definitionId": "greet-workflow", "variables": members{"name": "Bob"}}}}),
		Responses: map[string]*huma.Response{"200": answer("The outcomes", "application/json", schema[StartInstancesResponse](a), nil)},
		Errors:    []int{400, 413, 415, 503},
	}
}

func instancesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-instances", Summary: "List instances of workflows, the youngest first", Tags: []string{tagInstances},
		Description: "As they are at the moment. /v1/workflow-instances lists what the data index knows, of other engines too, with more " +
			"filters and some tens of milliseconds later.",
		Errors: []int{400, 503},
	}
}

func (a *API) instanceDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-instance", Summary: "Get an instance of a workflow", Tags: []string{tagInstances},
		Description: "As it is. With `wait` the answer comes once it has ended, or when the time is over: the status says which.",
		Parameters:  []*huma.Param{instanceParam(), param("query", "wait", "string", "How long to wait for the end: seconds, or a text such as 20s; at most a minute")},
		Responses:   map[string]*huma.Response{"200": exampled("The instance", schema[WorkflowInstanceSummary](a), exampleInstance())},
		Errors:      []int{400, 404, 503},
	}
}

func instanceHistoryDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-instance-history", Summary: "The steps that an instance has been through", Tags: []string{tagInstances},
		Description: "In the order of their start, those that are open too. A step that was entered again is there again.",
		Errors:      []int{400, 404, 503},
	}
}

func instanceAuditDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-instance-audit", Summary: "The audit log of an instance", Tags: []string{tagInstances},
		Description: "What happened to it and who did it, the oldest first. It is the same in both dispatch modes.",
		Errors:      []int{400, 404, 503},
	}
}

// actionWords are what the documentation says about one action on instances.
type actionWords struct {
	id, summary, description string
	example                  any
}

func cancelAction() actionWords {
	return actionWords{"cancel-instance", "End an instance",
		"What is open is void: its jobs are not given out any more, and their completion is refused. With `compensate` what it has done " +
			"is undone first. What has ended, by an earlier cancel too, is a conflict.", members{"reason": "the customer withdrew"}}
}

func suspendAction() actionWords {
	return actionWords{"suspend-instance", "Keep an instance from going on",
		"Its jobs are not given out until it is resumed. What workers have already may be completed, and is taken up on resume. Timers " +
			"that come due meanwhile fire then.", members{"reason": "the bank is down"}}
}

func resumeAction() actionWords {
	return actionWords{"resume-instance", "Let a suspended instance go on", "What came meanwhile is taken up, in order.", members{}}
}

func retryAction() actionWords {
	return actionWords{"retry-instance", "Let a failed instance go on",
		"The step that failed is entered again, or the one that is named. Variables can be mended on the way.",
		members{"variables": members{"accountNumber": "DE02120300000000202051"}}}
}

func compensateAction() actionWords {
	return actionWords{"compensate-instance", "Undo what an instance has done",
		"Whatever its status: the compensations of its completed steps run, the last step first.", members{"reason": "sold twice"}}
}

func (a *API) instanceActionDoc(words actionWords) huma.Operation {
	return huma.Operation{
		OperationID: words.id, Summary: words.summary, Tags: []string{tagInstances}, Description: words.description,
		Parameters:  []*huma.Param{instanceParam()},
		RequestBody: exampleBody(schema[InstanceActionRequest](a), false, words.example),
		Responses:   map[string]*huma.Response{"200": exampled("The instance as it is now", schema[WorkflowInstanceSummary](a), exampleInstance())},
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) signalDoc() huma.Operation {
	return huma.Operation{
		OperationID: "signal-instance", Summary: "Signal a WAIT of an instance", Tags: []string{tagInstances},
		Description: "The body is the variables themselves: they are merged into those of the instance. It may be empty: the signal is the " +
			"event. One that comes before the WAIT is reached is kept for it.",
		Parameters:  []*huma.Param{instanceParam(), stepParam("The id of the WAIT, or the name of its signal")},
		RequestBody: exampleBody(&huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}, false, members{"settled": true, "amount": 1250.5}),
		Responses:   done("Taken"),
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) correlateDoc() huma.Operation {
	return huma.Operation{
		OperationID: "correlate-signal", Summary: "Signal whichever instances wait for it", Tags: []string{tagInstances},
		Description: "They are found by the name of the signal and the key that their WAIT gives. When nobody waits yet the signal is kept for " +
			"a time, and the first that asks for it gets it. With an id, or under an Idempotency-Key, it is delivered once.",
		Parameters: []*huma.Param{keyParam()},
		RequestBody: exampleBody(schema[CorrelateSignalRequest](a), true, members{
			"signal": "payment-received", "correlationKey": "ORDER-17", "variables": members{"amount": 1250.5}}),
		Responses: map[string]*huma.Response{"200": answer("Taken or kept", "application/json", schema[CorrelateSignalResponse](a), nil)},
		Errors:    []int{400, 409, 413, 415, 503},
	}
}

func userTasksDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-user-tasks", Summary: "List user tasks, the oldest first", Tags: []string{tagUserTasks},
		Description: "Those that are open unless a status is given.", Errors: []int{400, 404, 503},
	}
}

func (a *API) completeUserTaskDoc() huma.Operation {
	return huma.Operation{
		OperationID: "complete-user-task", Summary: "Complete a user task", Tags: []string{tagUserTasks},
		Description: "By the id of its step. The variables are merged into those of the instance, which goes on. Completing it again changes " +
			"nothing, and is a conflict once the instance has ended. A task that somebody has claimed is completed by that person, or by a caller that names nobody.",
		Parameters:  []*huma.Param{instanceParam(), stepParam("The id of the USER_TASK")},
		RequestBody: exampleBody(schema[UserTaskCompletionRequest](a), false, members{"completedBy": "alice", "variables": members{"reviewDecision": "APPROVED"}}),
		Responses:   done("Completed, now or before"),
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) completeUserTaskByIDDoc() huma.Operation {
	op := a.completeUserTaskDoc()
	op.OperationID, op.Summary = "complete-user-task-by-id", "Complete a user task by its own id"
	op.Parameters = []*huma.Param{param("path", "id", "string", "The id of the task, as lists have it: that of the instance, a point, that of the step")}
	return op
}

func (a *API) claimDoc() huma.Operation {
	return huma.Operation{
		OperationID: "claim-user-task", Summary: "Take a user task", Tags: []string{tagUserTasks},
		Description: "Claiming what the person has already changes nothing; what somebody else has is refused.",
		Parameters:  []*huma.Param{instanceParam(), stepParam("The id of the USER_TASK")},
		RequestBody: exampleBody(schema[UserTaskClaimRequest](a), false, members{"user": "alice"}),
		Responses:   map[string]*huma.Response{"200": answer("The task", "application/json", schema[UserTaskSummary](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) unclaimDoc() huma.Operation {
	op := a.claimDoc()
	op.OperationID, op.Summary = "unclaim-user-task", "Give a user task back"
	op.Description = "Only the person who has it may; a caller that names nobody always may."
	return op
}

func exampleJob() members {
	return members{
		"id": "0198c0de-0000-7000-8000-00000000000a", "jobType": "credit-score", "instanceId": "0198c0de-0000-7000-8000-000000000001",
		"stepId": "credit-score-check", "stepExecutionId": "0198c0de-0000-7000-8000-000000000001.3", "status": "LOCKED", "workerId": "worker-1",
		"lockedAt": "2026-01-02T15:04:05Z", "lockExpiresAt": "2026-01-02T15:04:35Z", "retriesRemaining": 3,
		"variables": members{"loanAmount": 200000000}, "createdAt": "2026-01-02T15:04:04.98Z", "attempt": 1, "token": 1, "priority": 3,
	}
}

func (a *API) pollJobsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "poll-jobs", Summary: "Claim jobs", Tags: []string{tagJobs},
		Description: "Locks jobs of the types that the worker can do, by priority and then age, and gives each to one worker only. With `wait` " +
			"a poll that finds none is answered as soon as there is one, which is within milliseconds. Where jobs are dispatched over Kafka it is gone (410).",
		RequestBody: exampleBody(schema[JobPollRequest](a), true, members{
			"workerId": "worker-1", "jobTypes": []string{"credit-score", "fraud-screen"}, "maxJobs": 10, "wait": "20s"}),
		Responses: map[string]*huma.Response{"200": exampled("The jobs, or none", schema[JobPollResponse](a), members{"jobs": []members{exampleJob()}})},
		Errors:    []int{400, 410, 413, 415, 503},
	}
}

func jobParam() *huma.Param { return param("path", "id", "string", "The id of the job") }

func (a *API) completeJobDoc() huma.Operation {
	return huma.Operation{
		OperationID: "complete-job", Summary: "Complete a job", Tags: []string{tagJobs},
		Description: "The variables are merged into those of the instance, which goes on: both are stored when this is answered. The same " +
			"completion again is answered as the first was. One that comes after the lease ran out is taken as long as nobody else got the job.",
		Parameters:  []*huma.Param{jobParam()},
		RequestBody: exampleBody(schema[JobCompletionRequest](a), true, members{"workerId": "worker-1", "token": 1, "variables": members{"creditScore": 720}}),
		Responses:   done("Accepted, now or before"),
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) failJobDoc() huma.Operation {
	return huma.Operation{
		OperationID: "fail-job", Summary: "Report that a job failed", Tags: []string{tagJobs},
		Description: "It is put up again as the retry policy of its step says, as long as it has retries left and `retryable` is true; else its step fails.",
		Parameters:  []*huma.Param{jobParam()},
		RequestBody: exampleBody(schema[JobFailureRequest](a), true, members{"workerId": "worker-1", "errorMessage": "the bureau does not answer", "retryable": true}),
		Responses:   done("Accepted, now or before"),
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) heartbeatJobDoc() huma.Operation {
	return huma.Operation{
		OperationID: "heartbeat-job", Summary: "Keep a job", Tags: []string{tagJobs},
		Description: "Extends its lease. When it is refused somebody else has the job, or nobody needs it any more: stop.",
		Parameters:  []*huma.Param{jobParam()},
		RequestBody: exampleBody(schema[JobHeartbeatRequest](a), true, members{"workerId": "worker-1", "leaseSeconds": 60}),
		Responses:   done("It is kept"),
		Errors:      []int{400, 404, 409, 413, 415, 503},
	}
}

func (a *API) reportsDoc(op huma.Operation, what string, body *huma.RequestBody) huma.Operation {
	op.Parameters = nil
	op.Description = "One job, named by `jobId`, or up to 1000 in `" + what + "`, each judged for itself: the answer then has one outcome per report, " +
		"in order, and the body may be 16 times as long. Those of a batch share transactions."
	op.RequestBody = body
	op.Responses = done("The one job: accepted, now or before")
	op.Responses["200"] = answer("The outcomes of a batch", "application/json", schema[JobReportsResponse](a), nil)
	return op
}

func (a *API) completeJobsDoc() huma.Operation {
	op := a.completeJobDoc()
	op.OperationID, op.Summary = "complete-jobs", "Complete a job, or several"
	return a.reportsDoc(op, "completions", exampleBody(schema[JobCompletionRequest](a), true, members{"workerId": "worker-1", "completions": []members{
		{"jobId": "0198c0de-0000-7000-8000-00000000000a", "variables": members{"creditScore": 720}}, {"jobId": "0198c0de-0000-7000-8000-00000000000b"}}}))
}

func (a *API) failJobsDoc() huma.Operation {
	op := a.failJobDoc()
	op.OperationID, op.Summary = "fail-jobs", "Report that a job failed, or several"
	return a.reportsDoc(op, "failures", exampleBody(schema[JobFailureRequest](a), true, members{"workerId": "worker-1", "failures": []members{
		{"jobId": "0198c0de-0000-7000-8000-00000000000a", "errorMessage": "the bureau does not answer", "retryable": true}}}))
}

func (a *API) heartbeatJobsDoc() huma.Operation {
	op := a.heartbeatJobDoc()
	op.OperationID, op.Summary = "heartbeat-jobs", "Keep a job, or several"
	return a.reportsDoc(op, "beats", exampleBody(schema[JobHeartbeatRequest](a), true, members{"workerId": "worker-1", "beats": []members{
		{"jobId": "0198c0de-0000-7000-8000-00000000000a"}, {"jobId": "0198c0de-0000-7000-8000-00000000000b"}}}))
}

func jobDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-job", Summary: "Get a job", Tags: []string{tagJobs},
		Description: "With what its worker gets, whoever holds it.", Errors: []int{400, 404, 503},
	}
}

func jobsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-jobs", Summary: "List jobs", Tags: []string{tagJobs},
		Description: "For operators: nothing is claimed by it.", Errors: []int{400, 503},
	}
}
