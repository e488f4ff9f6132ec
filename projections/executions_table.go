package projections

// executionViews is the table execution_views: what lists of executions read.
type executionViews struct {
	table *Table

	id *Column
	// From "requested", which comes once.
	tenant, user, name, executor, resourceClass, concurrencyKey, labels, originKind, rerunOf, notBefore, requestedAt *Column

	version, attempt *Column

	priority                   *Column
	state                      *Column
	queuedAt, readyAt          *Column
	scheduled                  *Register
	scheduledAt, waitedMillis  *Column
	started                    *Register
	startedAt                  *Column
	worker                     *Column
	result                     *Register
	finishedAt, durationMillis *Column
	exitCode, signal           *Column
	reason, message            *Column
	stdoutBytes, stderrBytes   *Column
	cancelRequestedAt          *Column
}

func newExecutionViews() *executionViews {
	t := NewTable("execution_views", ByVersion)
	v := &executionViews{table: t}

	v.id = t.Key("id", Text, "id of the execution")
	v.tenant = t.Once("tenant", Text, "whose it is")
	v.user = t.Once("user_name", Text, "who asked for it")
	v.name = t.Once("name", Text, "what lists call it: the label `name`, else the program or function")
	v.executor = t.Once("executor", Text, "what runs it")
	v.resourceClass = t.Once("resource_class", Text, "the pool of workers that it waits for")
	v.concurrencyKey = t.Once("concurrency_key", Text, "what it may not run beside")
	v.labels = t.Once("labels", JSON, "labels of the request")
	v.originKind = t.Once("origin_kind", Text, "which front door it came through")
	v.rerunOf = t.Once("rerun_of", Text, "the execution that it repeats")
	v.notBefore = t.Once("not_before", Time, "the earliest start that was asked for")
	v.requestedAt = t.Once("requested_at", Time, "when it was asked for")

	v.version = t.Highest("version", Int, "version of the newest event")
	v.attempt = t.Highest("attempt", Int, "the attempt it is at, from 1; 0 before the first")

	v.priority = t.Register("priority_version").Column("priority", Int, "1 to 5, 5 the most urgent")
	v.state = t.Register("state_version").Column("state", Text, "where it stands")

	queued := t.Register("queued_version")
	v.queuedAt = queued.Column("queued_at", Time, "when it came into the queue, for this attempt")
	v.readyAt = queued.Column("ready_at", Time, "when it may be admitted at the earliest")

	v.scheduled = t.Register("scheduled_version")
	v.scheduledAt = v.scheduled.Column("scheduled_at", Time, "when this attempt was admitted")
	v.waitedMillis = v.scheduled.Column("waited_millis", Int, "how long it had waited then, in milliseconds")

	v.started = t.Register("started_version")
	v.startedAt = v.started.Column("started_at", Time, "when this attempt began to run")
	v.worker = t.Register("worker_version").Column("worker", Text, "the last worker that ran it")

	v.result = t.Register("result_version")
	v.finishedAt = v.result.Column("finished_at", Time, "when it ended")
	v.durationMillis = v.result.Column("duration_millis", Int, "how long it ran, in milliseconds")
	v.exitCode = v.result.Column("exit_code", Int, "exit code of the program")
	v.signal = v.result.Column("signal", Text, "the signal that ended the program")
	v.reason = v.result.Column("reason", Text, "why it ended, or why its last attempt came to nothing")
	v.message = v.result.Column("message", Text, "the same in words")
	v.stdoutBytes = v.result.Column("stdout_bytes", Int, "bytes written to standard output")
	v.stderrBytes = v.result.Column("stderr_bytes", Int, "bytes written to standard error")

	v.cancelRequestedAt = t.Register("cancel_requested_version").
		Column("cancel_requested_at", Time, "when somebody asked to cancel it")
	return v
}
