package rest

import "github.com/danielgtaylor/huma/v2"

func exampleTrigger() members {
	return members{
		"id": "orders", "kafka": members{"topics": []string{"orders"}},
		"target": members{"execution": members{
			"executor": "function", "spec": members{"name": "invoice", "args": members{"order": "${body}"}}, "concurrency_key": "${key}",
		}},
	}
}

// triggerSchema is that of a definition: docs/trigger-format.md says more.
func triggerSchema() *huma.Schema {
	text := func(description string, words ...any) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: description, Enum: words}
	}
	object := func(description string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeObject, Description: description, AdditionalProperties: true}
	}
	return &huma.Schema{
		Type: huma.TypeObject, Description: "A definition; docs/trigger-format.md has all of its fields", Required: []string{"target"}, AdditionalProperties: false,
		Properties: map[string]*huma.Schema{
			"id": text("That of the path; may be left out"), "description": text("For people"),
			"type":    text("Which of the three sources it has; may be left out", "kafka", "webhook", "schedule"),
			"enabled": {Type: huma.TypeBoolean, Description: "Without it a new trigger is on, and another one as it was"},
			"tenant":  text("Whose the executions and instances are"), "user": text("Who asks for them; whoever applied it first"),
			"kafka": object("Topics to read"), "webhook": object("How POST /hooks/{id} is guarded"), "schedule": object("When to fire"),
			"target":       object("What a message starts: execution, or workflow"),
			"limits":       object("open: how many targets may be unfinished at a time"),
			"limit_action": text("What becomes of messages beyond the limits", "queue", "reject", "stall"),
			"on_poison":    text("What becomes of a Kafka message of which nothing can be made", "dead_letter", "stall"),
			"members":      {Type: huma.TypeInteger, Description: "How many processes run it at once"},
			"alert_after":  text("How long it may stand before an alert, such as 1h"),
		},
	}
}

func triggerParam() *huma.Param { return param("path", "id", "string", "The id of the trigger") }

// changeParams are the parameters of what changes a trigger.
func changeParams() []*huma.Param {
	return []*huma.Param{
		triggerParam(), param("query", "dry_run", "boolean", "Say what would become of it, and store nothing"),
		param("header", "If-Match", "string", "The revision that is to be changed, as in ETag; another one is refused with 412"),
	}
}

func (a *API) putTriggerDoc() huma.Operation {
	s := schema[AppliedTrigger](a)
	return huma.Operation{
		OperationID: "apply-trigger", Summary: "Apply a trigger", Tags: []string{tagTriggers},
		Description: "Makes the trigger, or changes it, within seconds and without a restart; the same again is unchanged. What is wrong is told all at once. " +
			"The type and the consumer group are for ever those of the first time. Secrets are named by reference, and never returned.",
		Parameters: changeParams(), RequestBody: exampleBody(triggerSchema(), true, exampleTrigger()),
		Responses: map[string]*huma.Response{
			"201": answer("Created", "application/json", s, map[string]string{"Location": "Where the trigger is found", "ETag": "The revision"}),
			"200": answer("Updated, or unchanged", "application/json", s, map[string]string{"ETag": "The revision"}),
		},
		Errors: []int{400, 412, 413, 415, 422, 503},
	}
}

func (a *API) validateTriggerDoc() huma.Operation {
	return huma.Operation{
		OperationID: "validate-trigger", Summary: "Check a trigger", Tags: []string{tagTriggers},
		Description: "What applying it would say of the definition itself, with nothing stored. Try applying with dry_run for what there is beside it.",
		RequestBody: exampleBody(triggerSchema(), true, exampleTrigger()),
		Responses:   map[string]*huma.Response{"200": answer("What is wrong with it", "application/json", schema[TriggerReport](a), nil)},
		Errors:      []int{400, 413, 415, 503},
	}
}

func listTriggersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-triggers", Summary: "List triggers", Tags: []string{tagTriggers}, Description: "By id, with how each is doing.", Errors: []int{400, 422, 503},
	}
}

func getTriggerDoc() huma.Operation {
	return huma.Operation{OperationID: "get-trigger", Summary: "Get a trigger", Tags: []string{tagTriggers}, Errors: []int{400, 404, 503}}
}

func triggerStatusDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-trigger-status", Summary: "Show how a trigger is doing", Tags: []string{tagTriggers},
		Description: "Of each member and partition: whether it receives, else why not, since when, at which message, and when it tries again; and the settings in use. " +
			"A change is seen within 2 seconds.",
		Errors: []int{400, 404, 503},
	}
}

func (a *API) changeTriggerDoc(id, summary, description string, body bool) huma.Operation {
	op := huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{tagTriggers}, Description: description, Parameters: changeParams(),
		Responses: map[string]*huma.Response{"200": answer("The trigger", "application/json", schema[Trigger](a), map[string]string{"ETag": "The revision"})},
		Errors:    []int{400, 404, 412, 503},
	}
	if body {
		op.Errors = append(op.Errors, 422)
	}
	return op
}
