package rest

import "github.com/danielgtaylor/huma/v2"

func listLettersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-dead-letters", Summary: "List dead letters, the last failure first", Tags: []string{tagDeadLetters},
		Description: "Without values, headers and actions. Paging is stable: letters that come meanwhile do not move those on later pages.",
		Errors:      []int{400, 503},
	}
}

func groupLettersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "group-dead-letters", Summary: "Dead letters by what went wrong", Tags: []string{tagDeadLetters},
		Description: "Letters whose error is the same but for ids and numbers have one fingerprint. The largest group comes first.",
		Errors:      []int{400, 503},
	}
}

func getLetterDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-dead-letter", Summary: "Get a dead letter with its record", Tags: []string{tagDeadLetters},
		Errors: []int{400, 404, 503},
	}
}

func letterParam() *huma.Param { return param("path", "id", "string", "The id of the dead letter") }

func (a *API) redriveLetterDoc() huma.Operation {
	return huma.Operation{
		OperationID: "redrive-dead-letter", Summary: "Give a record to its consumer again", Tags: []string{tagDeadLetters},
		Description: "The record is published to its topic as it was, with a header by which only the consumer that failed acts on it. " +
			"If it fails again there is another letter; when its consumer has processed it, the letter is RESOLVED. " +
			"A letter with a lane does not go through the topic: it is handled first in its lane, and if it fails again it is OPEN again.",
		Parameters:  []*huma.Param{letterParam()},
		RequestBody: jsonBody(schema[RedriveOneRequest](a), false),
		Responses:   map[string]*huma.Response{"200": answer("It will be published", "application/json", schema[DeadLetter](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func (a *API) redriveDoc() huma.Operation {
	return huma.Operation{
		OperationID: "redrive-dead-letters", Summary: "Give many records to their consumers again", Tags: []string{tagDeadLetters},
		Description: "Letters that are named are redriven at once. Those of a filter are redriven by and by, from the oldest to the newest: " +
			"the answer is 202 with the redrive, which can be followed, paused, resumed and cancelled. Letters that are filed after its start are not part of it.",
		RequestBody: jsonBody(schema[RedriveRequest](a), true),
		Responses: map[string]*huma.Response{
			"200": answer("What became of each, or would become", "application/json", schema[RedriveResponse](a), nil),
			"202": answer("The redrive has begun", "application/json", schema[DeadLetterRedrive](a), map[string]string{"Location": "Where the redrive is found"}),
		},
		Errors: []int{400, 409, 413, 415, 422, 503},
	}
}

func (a *API) discardDoc() huma.Operation {
	return a.letterDoc("discard-dead-letter", "Say that a record is not needed", "", schema[DiscardRequest](a))
}

func (a *API) editDoc() huma.Operation {
	return a.letterDoc("edit-dead-letter", "Change the record that a redrive sends",
		"The letter keeps the original record, and each edit what it changed, by whom and why. The record is held against the schema of its event type.",
		schema[EditRequest](a))
}

// letterDoc is about something done with one letter, which is the answer.
func (a *API) letterDoc(id, summary, description string, body *huma.Schema) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Description: description, Tags: []string{tagDeadLetters},
		Parameters:  []*huma.Param{letterParam()},
		RequestBody: jsonBody(body, true),
		Responses:   map[string]*huma.Response{"200": answer("The letter as it stands now", "application/json", schema[DeadLetter](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}

// lettersDoc is about something done with several letters.
func (a *API) lettersDoc(id, summary, description string, body *huma.Schema) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Description: description, Tags: []string{tagDeadLetters},
		RequestBody: jsonBody(body, true),
		Responses:   map[string]*huma.Response{"200": answer("How many, and what became of those named", "application/json", schema[LettersChanged](a), nil)},
		Errors:      []int{400, 413, 415, 422, 503},
	}
}

func (a *API) archiveDoc() huma.Operation {
	return a.lettersDoc("archive-dead-letters", "Put letters out of sight",
		"Their status stays. Lists leave them out, and nothing is done with them until they are restored. "+
			"OPEN ones that a lane waits for are refused, and left out of those of a filter.", schema[ArchiveRequest](a))
}

func (a *API) restoreDoc() huma.Operation {
	return a.lettersDoc("restore-dead-letters", "Bring archived letters back", "", schema[RestoreRequest](a))
}

func (a *API) deleteDoc() huma.Operation {
	return a.lettersDoc("delete-dead-letters", "Destroy the records of letters",
		"With their edits and the texts of errors. What remains says that there was a letter and who deleted it. It cannot be undone. "+
			"OPEN ones that a lane waits for must be discarded first.", schema[DeleteRequest](a))
}

func listRedrivesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-dead-letter-redrives", Summary: "List redrives of many letters, the newest first", Tags: []string{tagDeadLetters},
		Errors: []int{400, 503},
	}
}

func getRedriveDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-dead-letter-redrive", Summary: "How far a redrive of many letters is", Tags: []string{tagDeadLetters},
		Errors: []int{400, 404, 503},
	}
}

func redriveLettersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-letters-of-dead-letter-redrive", Summary: "What became of the letters of a redrive", Tags: []string{tagDeadLetters},
		Description: "From the oldest letter on.",
		Errors:      []int{400, 404, 503},
	}
}

func (a *API) controlRedriveDoc(verb, summary string) huma.Operation {
	return huma.Operation{
		OperationID: verb + "-dead-letter-redrive", Summary: summary, Tags: []string{tagDeadLetters},
		Parameters:  []*huma.Param{param("path", "id", "string", "The id of the redrive")},
		RequestBody: jsonBody(schema[ControlRedriveRequest](a), false),
		Responses:   map[string]*huma.Response{"200": answer("The redrive as it stands now", "application/json", schema[DeadLetterRedrive](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}
