package query

// took is the duration of a row with a start and an end, in microseconds.
const took = `date_part('epoch', "end" - start) * 1e6`

func workflowInstances() *schema[WorkflowInstance] {
	type row = WorkflowInstance
	fields := []field[row]{
		{required(orderable(textField("id", "The id of the instance"))), "id", func(r *row) any { return &r.ID }},
		{orderable(groupable(textField("namespace", "The namespace of the definition"))), "namespace", func(r *row) any { return &r.Namespace }},
		{orderable(groupable(textField("name", "The name of the definition"))), "name", func(r *row) any { return &r.Name }},
		{orderable(groupable(textField("version", "The version of the definition"))), "version", func(r *row) any { return &r.Version }},
		{enumField("status", "How it stands", statuses()...), "status", func(r *row) any { return &r.Status }},
		{timeField("start", "When it started"), "start", func(r *row) any { return &r.Start }},
		{timeField("end", "When it ended"), `"end"`, func(r *row) any { return &r.End }},
		{timeField("last_update", "When its status last changed"), "last_update", func(r *row) any { return &r.LastUpdate }},
		{jsonField("input", "What it was given"), "input", func(r *row) any { return (*[]byte)(&r.Input) }},
		{jsonField("output", "What it returned"), "output", func(r *row) any { return (*[]byte)(&r.Output) }},
	}
	fields = append(fields, errorFields(func(r *row) *Error { return &r.Error })...)
	fields = append(fields, historyFields(func(r *row) *History { return &r.History })...)
	fields = append(fields,
		field[row]{Field: Field{Name: "placeholder", Kind: Bool, Doc: "Events of its tasks have come, but none of the workflow itself"},
			column: "(name IS NULL AND status IS NULL)"},
		field[row]{Field: intField("duration_millis", "How long it took, of those that have ended"), column: "(" + took + " / 1000)::bigint"},
	)
	s := declare(Schema{
		Name: "workflow instances", Key: []string{"id"}, table: "workflow_instances",
		Durations: []string{"duration"}, duration: map[string]string{"duration": took},
		Searchable: true, search: searchWorkflows,
		order: []Order{{Field: "start", Descending: true}},
	}, fields)
	return singleKey(s, func(r *row) string { return r.ID })
}

func taskInstances() *schema[TaskInstance] {
	type row = TaskInstance
	fields := []field[row]{
		{required(orderable(textField("instance_id", "The id of the workflow instance"))), "instance_id", func(r *row) any { return &r.InstanceID }},
		{required(orderable(groupable(textField("task_position", "Where the task is in the definition")))), "task_position", func(r *row) any { return &r.Position }},
		{required(orderable(intField("iteration", "The turn of the loop around it; 0 where it is not told"))), "iteration", func(r *row) any { return &r.Iteration }},
		{required(orderable(intField("attempt", "The attempt; 0 where it is not told"))), "attempt", func(r *row) any { return &r.Attempt }},
		{orderable(textField("task_execution_id", "What the engine calls this execution of the task")), "task_execution_id", func(r *row) any { return &r.ExecutionID }},
		{orderable(groupable(textField("task_name", "The name of the task"))), "task_name", func(r *row) any { return &r.Name }},
		{enumField("status", "How it stands", statuses()...), "status", func(r *row) any { return &r.Status }},
		{timeField("start", "When it started"), "start", func(r *row) any { return &r.Start }},
		{timeField("end", "When it ended"), `"end"`, func(r *row) any { return &r.End }},
		{timeField("last_update", "When its status last changed"), "last_update", func(r *row) any { return &r.LastUpdate }},
		{jsonField("input", "What it was given"), "input", func(r *row) any { return (*[]byte)(&r.Input) }},
		{jsonField("output", "What it returned"), "output", func(r *row) any { return (*[]byte)(&r.Output) }},
	}
	fields = append(fields, errorFields(func(r *row) *Error { return &r.Error })...)
	fields = append(fields, historyFields(func(r *row) *History { return &r.History })...)
	fields = append(fields, field[row]{Field: intField("duration_millis", "How long it took, of those that have ended"), column: "(" + took + " / 1000)::bigint"})
	s := declare(Schema{
		Name: "task instances", Key: []string{"instance_id", "task_position", "iteration", "attempt"}, table: "task_instances",
		Durations: []string{"duration"}, duration: map[string]string{"duration": took},
		Searchable: true, search: searchTasks,
		order: []Order{{Field: "start", Descending: true}},
	}, fields)
	s.id = func(r *row) string { return r.TaskKey.String() }
	s.parseKey = func(id string) ([]any, error) {
		k, err := ParseTaskKey(id)
		return k.values(), err
	}
	return s
}

func errorFields[R any](of func(*R) *Error) []field[R] {
	return []field[R]{
		{groupable(textField("error_type", "What kind of error ended it")), "error_type", func(r *R) any { return &of(r).Type }},
		{textField("error_title", "The error in words"), "error_title", func(r *R) any { return &of(r).Title }},
		{textField("error_detail", "What happened"), "error_detail", func(r *R) any { return &of(r).Detail }},
		{groupable(intField("error_status", "The status code of the error")), "error_status", func(r *R) any { return &of(r).Status }},
		{textField("error_instance", "Where it happened"), "error_instance", func(r *R) any { return &of(r).Instance }},
	}
}

func historyFields[R any](of func(*R) *History) []field[R] {
	arrival := func(name, doc string) Field { return required(timeField(name, doc)) }
	return []field[R]{
		{timeField("last_event_time", "The time of the newest event"), "last_event_time", func(r *R) any { return &of(r).LastEventTime }},
		{timeField("history_from", "The time of the earliest event"), "history_from", func(r *R) any { return &of(r).From }},
		{Field{Name: "events_future", Kind: Bool, Doc: "One of its events claimed to come from the future"}, "events_future", func(r *R) any { return &of(r).Future }},
		{arrival("created_at", "When its first event arrived"), "created_at", func(r *R) any { return &of(r).CreatedAt }},
		{arrival("updated_at", "When its last event arrived"), "updated_at", func(r *R) any { return &of(r).UpdatedAt }},
	}
}
