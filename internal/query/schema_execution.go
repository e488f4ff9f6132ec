package query

import "github.com/millrace/millrace/internal/execution"

func executions() *schema[Execution] {
	type row = Execution
	var states []string
	for _, s := range execution.States() {
		states = append(states, string(s))
	}
	fields := []field[row]{
		{required(orderable(textField("id", "The id of the execution"))), "id", func(r *row) any { return &r.ID }},
		{groupable(textField("tenant", "Whose it is")), "tenant", func(r *row) any { return &r.Tenant }},
		{groupable(textField("user", "On whose behalf it runs")), "user_name", func(r *row) any { return &r.User }},
		{orderable(groupable(textField("name", `The label "name", else the program or function`))), "name", func(r *row) any { return &r.Name }},
		{groupable(textField("executor", "What runs it")), "executor", func(r *row) any { return &r.Executor }},
		{groupable(textField("resource_class", "The pool of workers")), "resource_class", func(r *row) any { return &r.ResourceClass }},
		{groupable(intField("priority", "1 to 5")), "priority", func(r *row) any { return &r.Priority }},
		{textField("concurrency_key", "Those with the same key run one after the other"), "concurrency_key", func(r *row) any { return &r.ConcurrencyKey }},
		{jsonField("labels", "For finding and grouping"), "labels", func(r *row) any { return (*[]byte)(&r.Labels) }},
		{groupable(textField("origin", "The kind of front door")), "origin_kind", func(r *row) any { return &r.OriginKind }},
		{textField("rerun_of", "The execution that it repeats"), "rerun_of", func(r *row) any { return &r.RerunOf }},
		{timeField("not_before", "The earliest time to start"), "not_before", func(r *row) any { return &r.NotBefore }},
		{enumField("state", "How it stands", states...), "state", func(r *row) any { return &r.State }},
		{required(intField("version", "How many events it has")), "version", func(r *row) any { return &r.Version }},
		{required(groupable(intField("attempt", "Counts from 1"))), "attempt", func(r *row) any { return &r.Attempt }},
		{groupable(textField("worker", "The last worker that ran it")), "worker", func(r *row) any { return &r.Worker }},
		// Not null for every row that is listed: see visible below.
		{required(timeField("requested_at", "When it was asked for")), "requested_at", func(r *row) any { return &r.RequestedAt }},
		{timeField("queued_at", "When it was queued"), "queued_at", func(r *row) any { return &r.QueuedAt }},
		{timeField("ready_at", "When it may be admitted at the earliest"), "ready_at", func(r *row) any { return &r.ReadyAt }},
		{timeField("scheduled_at", "When capacity was reserved"), "scheduled_at", func(r *row) any { return &r.ScheduledAt }},
		{timeField("started_at", "When the current attempt started"), "started_at", func(r *row) any { return &r.StartedAt }},
		{timeField("finished_at", "When it ended"), "finished_at", func(r *row) any { return &r.FinishedAt }},
		{timeField("cancel_requested_at", "When a cancel was asked for"), "cancel_requested_at", func(r *row) any { return &r.CancelRequestedAt }},
		{orderable(intField("waited_millis", "How long the current attempt waited in the queue")), "waited_millis", func(r *row) any { return &r.WaitedMillis }},
		{orderable(intField("duration_millis", "How long the last attempt ran")), "duration_millis", func(r *row) any { return &r.DurationMillis }},
		{groupable(intField("exit_code", "The exit code of the program")), "exit_code", func(r *row) any { return &r.ExitCode }},
		{groupable(textField("signal", "The signal that ended the program")), "signal", func(r *row) any { return &r.Signal }},
		{groupable(textField("reason", "Why it ended, or why its last attempt came to nothing")), "reason", func(r *row) any { return &r.Reason }},
		{textField("message", "The reason in words"), "message", func(r *row) any { return &r.Message }},
		{intField("stdout_bytes", "What the last attempt wrote"), "stdout_bytes", func(r *row) any { return &r.StdoutBytes }},
		{intField("stderr_bytes", "What the last attempt wrote"), "stderr_bytes", func(r *row) any { return &r.StderrBytes }},
	}
	s := declare(Schema{
		Name: "executions", Key: []string{"id"}, table: "execution_views",
		Durations:  []string{"duration", "waited"},
		duration:   map[string]string{"duration": "duration_millis * 1e3", "waited": "waited_millis * 1e3"},
		Searchable: true, search: searchExecutions,
		// A row whose "requested" has not arrived yet has no place in the order.
		visible: "requested_at IS NOT NULL",
		order:   []Order{{Field: "requested_at", Descending: true}},
		scope:   scopeColumns{known: true, tenant: "tenant = ", user: "user_name = "},
	}, fields)
	return singleKey(s, func(r *row) string { return r.ID })
}

func pods() *schema[Pod] {
	type row = Pod
	fields := []field[row]{
		{required(orderable(textField("id", "The id of the pod"))), "id", func(r *row) any { return &r.ID }},
		{textField("execution_id", "The execution that it runs"), "execution_id", func(r *row) any { return &r.ExecutionID }},
		{groupable(textField("namespace", "The namespace in the cluster")), "namespace", func(r *row) any { return &r.Namespace }},
		{textField("name", "The name of the pod"), "name", func(r *row) any { return &r.Name }},
		{groupable(intField("attempt", "The attempt of the execution")), "attempt", func(r *row) any { return &r.Attempt }},
		{groupable(textField("phase", "How it stands")), "phase", func(r *row) any { return &r.Phase }},
		{groupable(textField("node", "Where it runs")), "node", func(r *row) any { return &r.Node }},
		{groupable(textField("reason", "Why it stands so")), "reason", func(r *row) any { return &r.Reason }},
		{textField("message", "The reason in words"), "message", func(r *row) any { return &r.Message }},
		{groupable(intField("exit_code", "The exit code of the program")), "exit_code", func(r *row) any { return &r.ExitCode }},
		{timeField("created_time", "When it was made"), "created_time", func(r *row) any { return &r.CreatedTime }},
		{timeField("scheduled_time", "When it got a node"), "scheduled_time", func(r *row) any { return &r.ScheduledTime }},
		{timeField("started_time", "When its program started"), "started_time", func(r *row) any { return &r.StartedTime }},
		{timeField("finished_time", "When its program ended"), "finished_time", func(r *row) any { return &r.FinishedTime }},
		{timeField("deleted_time", "When it was deleted"), "deleted_time", func(r *row) any { return &r.DeletedTime }},
		{required(intField("version", "The version of its last event")), "version", func(r *row) any { return &r.Version }},
	}
	const of = "EXISTS (SELECT FROM execution_views AS owner WHERE owner.id = pod_views.execution_id AND owner."
	s := declare(Schema{
		Name: "pods", Key: []string{"id"}, table: "pod_views",
		Durations: []string{"duration", "scheduling"},
		duration: map[string]string{
			"duration":   "date_part('epoch', finished_time - started_time) * 1e6",
			"scheduling": "date_part('epoch', scheduled_time - created_time) * 1e6",
		},
		order: []Order{{Field: "created_time", Descending: true}},
		// A pod belongs to whom its execution belongs to.
		scope: scopeColumns{known: true, tenant: of + "tenant = ", user: of + "user_name = ", end: ")"},
	}, fields)
	return singleKey(s, func(r *row) string { return r.ID })
}

func sagas() *schema[Saga] {
	type row = Saga
	fields := []field[row]{
		{required(orderable(textField("id", "The id of the saga"))), "id", func(r *row) any { return &r.ID }},
		{orderable(groupable(textField("name", "What kind of saga it is"))), "name", func(r *row) any { return &r.Name }},
		{textField("business_key", "What it is about"), "business_key", func(r *row) any { return &r.BusinessKey }},
		{orderable(groupable(textField("status", "How it stands"))), "status", func(r *row) any { return &r.Status }},
		{groupable(textField("step", "The current step")), "step", func(r *row) any { return &r.Step }},
		{groupable(textField("reason", "Why it stands so")), "reason", func(r *row) any { return &r.Reason }},
		{textField("message", "The reason in words"), "message", func(r *row) any { return &r.Message }},
		{jsonField("steps", "How each step stands"), "steps", func(r *row) any { return (*[]byte)(&r.Steps) }},
		{timeField("started_time", "When it started"), "started_time", func(r *row) any { return &r.StartedTime }},
		{timeField("finished_time", "When it ended"), "finished_time", func(r *row) any { return &r.FinishedTime }},
		{required(intField("version", "The version of its last event")), "version", func(r *row) any { return &r.Version }},
	}
	s := declare(Schema{
		Name: "sagas", Key: []string{"id"}, table: "saga_views",
		Durations: []string{"duration"},
		duration:  map[string]string{"duration": "date_part('epoch', finished_time - started_time) * 1e6"},
		order:     []Order{{Field: "started_time", Descending: true}},
	}, fields)
	return singleKey(s, func(r *row) string { return r.ID })
}
