package topics

import "errors"

// ErrMalformed is what every DecodeError wraps: the bytes can never be decoded,
// so trying again is of no use.
var ErrMalformed = errors.New("malformed event")

// The codes of a DecodeError. They are part of the contract: dead letters and
// HTTP problems carry them.
const (
	// CodeNotCloudEvent: neither an attribute of CloudEvents nor a JSON object
	// that could be an event in structured mode.
	CodeNotCloudEvent = "not_a_cloudevent"
	// CodeMissingAttribute: id, source, type or specversion is missing or empty.
	CodeMissingAttribute = "missing_attribute"
	// CodeDuplicateAttribute: an attribute occurs twice, so it has no one value.
	CodeDuplicateAttribute = "duplicate_attribute"
	// CodeInvalidAttribute: an attribute has a type, a character or a name that
	// CloudEvents does not allow.
	CodeInvalidAttribute = "invalid_attribute"
	// CodeAttributeTooLong: an attribute is longer than MaxAttributeBytes.
	CodeAttributeTooLong = "attribute_too_long"
	// CodeInvalidUTF8: text that is not UTF-8.
	CodeInvalidUTF8 = "invalid_utf8"
	// CodeUnsupportedSpecVersion: a specversion other than 1.0.
	CodeUnsupportedSpecVersion = "unsupported_specversion"
	// CodeUnsupportedFormat: a structured or batched format other than JSON.
	CodeUnsupportedFormat = "unsupported_format"
	// CodeInvalidTime: a time that is not RFC 3339.
	CodeInvalidTime = "invalid_time"
	// CodeMalformedJSON: JSON that cannot be parsed.
	CodeMalformedJSON = "malformed_json"
	// CodeInvalidBase64: data_base64 that is not base64.
	CodeInvalidBase64 = "invalid_base64"
	// CodeDataConflict: both data and data_base64.
	CodeDataConflict = "data_conflict"
	// CodeUnexpectedType: the event is of another type than asked for, or of one
	// that is not in the catalogue.
	CodeUnexpectedType = "unexpected_type"
	// CodeUnsupportedContentType: data that is not JSON where JSON is due.
	CodeUnsupportedContentType = "unsupported_content_type"
	// CodeAmbiguousField: data with a field that differs from a known one in upper
	// and lower case only, so that two readers would not see the same value.
	CodeAmbiguousField = "ambiguous_field"
	// CodeSchemaViolation: data that is against the JSON Schema of its type.
	CodeSchemaViolation = "schema_violation"
	// CodeInvalidData: data that fits the schema but not the Go type, such as an
	// integer that is too large.
	CodeInvalidData = "invalid_data"
)

// DecodeError says why bytes are not an event. It wraps ErrMalformed and repeats
// no value from the event, so it is safe to log.
type DecodeError struct {
	// Code is one of the Code constants.
	Code string
	// Field is what is wrong: an attribute by its CloudEvents name, or, for
	// faults of the data, a JSON pointer into it. In a batch the pointer begins
	// with the index of the event. Empty when the whole is wrong.
	Field string
	// Message says it in words.
	Message string
}

// Error implements error.
func (e *DecodeError) Error() string {
	if e.Field == "" {
		return "decode event: " + e.Code + ": " + e.Message
	}
	return "decode event: " + e.Code + ": " + e.Field + ": " + e.Message
}

// Unwrap returns ErrMalformed.
func (e *DecodeError) Unwrap() error { return ErrMalformed }

func fault(code, field, message string) *DecodeError {
	return &DecodeError{Code: code, Field: field, Message: message}
}
