package lifecycle

import "github.com/millrace/millrace/topics"

// readFlat reads the shape that has instanceId.
func (m *members) readFlat(e *Event) error {
	e.Shape = Flat
	var errs [16]error
	e.InstanceID, errs[0] = m.key(instanceID)
	e.Start, errs[1] = m.time(startTime)
	e.End, errs[2] = m.time(endTime)
	e.LastUpdate, errs[3] = m.time(lastUpdateTime)
	e.Error, errs[4] = m.fault()
	e.Input, e.Output = m[input], m[output]
	if e.Kind == Workflow {
		e.Namespace, errs[5] = m.text(workflowNamespace)
		e.Name, errs[6] = m.text(workflowName)
		e.Version, errs[7] = m.text(workflowVersion)
	} else {
		e.TaskPosition, errs[8] = m.key(taskPosition)
		e.TaskName, errs[9] = m.text(taskNameField)
		e.TaskExecutionID, errs[10] = m.text(taskExecutionID)
		e.Iteration, errs[11] = m.count(iteration)
		e.Attempt, errs[12] = m.count(attempt)
	}
	if err := firstOf(errs[:]); err != nil {
		return err
	}
	return e.identify(instanceID, taskPosition)
}

// readNested reads the shape of the CNCF specification, in which a workflow's name is
// the id of the instance.
func (m *members) readNested(e *Event) error {
	e.Shape = Nested
	var errs [12]error
	// Whichever time the type has is when it changed.
	e.LastUpdate, errs[0] = m.time(updatedAt, updatetAt, completedAt, faultedAt, cancelledAt, suspendedAt, resumedAt, retriedAt, startedAt, createdAt)
	e.End, errs[1] = m.time(completedAt, faultedAt, cancelledAt)
	// The first that is heard of a task may be that the block around it is tried again.
	e.Start, errs[2] = m.time(startedAt, retriedAt)
	e.Error, errs[3] = m.fault()
	e.Input, e.Output = m[input], m[output]
	id := name
	if e.Kind == Workflow {
		e.InstanceID, errs[4] = m.key(name)
		errs[5] = m.definition(e)
	} else {
		id = workflow
		e.InstanceID, errs[4] = m.key(workflow)
		e.TaskPosition, errs[5] = m.key(task)
		e.TaskExecutionID, errs[6] = m.text(taskExecutionID)
		e.TaskName, errs[7] = m.text(taskNameField)
		e.Iteration, errs[8] = m.count(iteration)
		e.Attempt, errs[9] = m.count(attempt)
	}
	if err := firstOf(errs[:]); err != nil {
		return err
	}
	return e.identify(id, task)
}

// definition reads what a workflow is an instance of.
func (m *members) definition(e *Event) error {
	if m[definition] == nil {
		return nil
	}
	if !isObject(m[definition]) {
		return defect(CodeInvalidField, pointer(definition), "is not an object")
	}
	for key, value := range topics.Members(m[definition]) {
		var err error
		switch key {
		case "namespace":
			e.Namespace, err = textOf(value, "/definition/namespace")
		case "name":
			e.Name, err = textOf(value, "/definition/name")
		case "version":
			e.Version, err = textOf(value, "/definition/version")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// identify checks that the event says what it is about.
func (e *Event) identify(id, position field) error {
	if e.InstanceID == "" {
		return defect(CodeMissingInstance, pointer(id), "is missing or empty: nothing says which instance this is about")
	}
	if e.Kind != Task {
		return nil
	}
	e.TaskPosition = normalPosition(e.TaskPosition)
	if e.TaskPosition == "" {
		return defect(CodeMissingTaskPosition, pointer(position), "is missing or empty")
	}
	if e.TaskName == "" {
		e.TaskName = taskName(e.TaskPosition)
	}
	return nil
}

// firstOf returns the first error there is, as it is.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
