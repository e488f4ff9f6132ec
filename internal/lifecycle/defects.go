package lifecycle

import "github.com/millrace/millrace/topics"

// The codes of defects that package topics has no code for. They are part of the
// contract: dead letters carry them.
const (
	// CodeUnsupportedTypeVersion: the type ends in another version than ".v1".
	CodeUnsupportedTypeVersion = "unsupported_type_version"
	// CodeMissingData: the event has no data.
	CodeMissingData = "missing_data"
	// CodeMissingInstance: nothing says which instance it is about: neither instanceId
	// nor, in the nested shape, name or workflow.
	CodeMissingInstance = "missing_instance"
	// CodeMissingTaskPosition: an event about a task does not say about which.
	CodeMissingTaskPosition = "missing_task_position"
	// CodeInvalidStatus: a status-changed event without a status, or with one that is
	// not known.
	CodeInvalidStatus = "invalid_status"
	// CodeInvalidTimestamp: a time in the data that is neither ISO 8601 with an offset
	// nor seconds since 1970, or that lies outside of the years 1 to 9999.
	CodeInvalidTimestamp = "invalid_timestamp"
	// CodeInvalidField: a field has another type than it must have, or a number is out
	// of its range.
	CodeInvalidField = "invalid_field"
	// CodeUnusableKey: the id of an instance or the position of a task is longer than
	// MaxKeyBytes, or has characters that cannot be stored.
	CodeUnusableKey = "unusable_key"
)

// MaxKeyBytes bounds the id of an instance and the position of a task, which are keys
// of tables.
const MaxKeyBytes = 1024

// MaxNameBytes is how much is kept of a name (of a definition, its namespace and version,
// of a task), so that an index can hold several of them beside a key.
const MaxNameBytes = 255

// defect words a fault of an event. Field is an attribute, or a JSON pointer into the
// data.
func defect(code, field, message string) error {
	return &topics.DecodeError{Code: code, Field: field, Message: message}
}
