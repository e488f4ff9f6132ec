package projections

// flowRow are the columns that workflow_instances and task_instances share.
type flowRow struct {
	table *Table

	// The three registers of a status that can be left again; the migration derives the
	// column status from them.
	active, terminal *Column
	reopened         *Register

	start, end, lastUpdate                                            *Column
	input, output                                                     *Column
	errorType, errorTitle, errorDetail, errorStatus, errorInstanceRef *Column
	lastEventTime                                                     *Column
}

// Ranks in the register of the last status that is not final.
const (
	rankCreated uint8 = iota // having been created says nothing once anything else has happened
	rankUnderWay
)

func newFlowRow(t *Table) flowRow {
	r := flowRow{table: t}
	r.active = t.Register("active_mark").Column("active_status", Text, "the last status that is no end: CREATED, RUNNING or SUSPENDED")
	r.terminal = t.Register("terminal_mark").Column("terminal_status", Text, "the last end: COMPLETED, FAULTED or CANCELLED; `status` is this one unless the row was reopened since")
	r.reopened = t.Register("reopened_mark")
	r.start = t.First("start", Time, "when it began")
	r.end = t.Last("end", Time, "when it ended")
	r.lastUpdate = t.Last("last_update", Time, "when it last changed")
	r.input = t.First("input", JSON, "what it was given")
	r.output = t.Last("output", JSON, "what it returned")
	r.errorType = t.Last("error_type", Text, "the kind of error, a URI")
	r.errorTitle = t.Last("error_title", Text, "the kind in words")
	r.errorDetail = t.Last("error_detail", LongText, "what happened")
	r.errorStatus = t.Last("error_status", Int, "the error as a status of HTTP")
	r.errorInstanceRef = t.Last("error_instance", Text, "where it happened, usually the position of a task")
	r.lastEventTime = t.Highest("last_event_time", Time, "time of the newest event, clamped")
	return r
}

// workflowInstances is the table workflow_instances of the data index.
type workflowInstances struct {
	flowRow
	namespace, name, version *Column
}

func newWorkflowInstances() *workflowInstances {
	t := NewTable("workflow_instances", ByVersionOrTime)
	t.Key("id", Text, "id of the instance")
	w := &workflowInstances{}
	w.namespace = t.First("namespace", Text, "namespace of the definition")
	w.name = t.First("name", Text, "name of the definition")
	w.version = t.First("version", Text, "version of the definition")
	w.flowRow = newFlowRow(t)
	return w
}

// taskInstances is the table task_instances of the data index.
type taskInstances struct {
	flowRow
	name, executionID *Column
}

func newTaskInstances() *taskInstances {
	t := NewTable("task_instances", ByVersionOrTime)
	t.Key("instance_id", Text, "id of the workflow instance")
	t.Key("task_position", Text, "where the task stands in the definition")
	t.Key("iteration", Int, "the turn of the loop around it; 0 where the engine does not say")
	t.Key("attempt", Int, "the attempt at it; 0 where the engine does not say")
	i := &taskInstances{}
	i.executionID = t.First("task_execution_id", Text, "id of its execution; some engines make one per event")
	i.name = t.First("task_name", Text, "name of the task in the definition")
	i.flowRow = newFlowRow(t)
	return i
}
