package lifecycle

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// field is one of the members of the data that are read, in either shape.
type field uint8

// The fields, those of the flat shape first.
const (
	instanceID field = iota
	workflowName
	workflowNamespace
	workflowVersion
	status
	startTime
	endTime
	lastUpdateTime
	input
	output
	errorField
	taskExecutionID
	taskNameField
	taskPosition
	iteration
	attempt
	name
	workflow
	task
	definition
	createdAt
	startedAt
	suspendedAt
	resumedAt
	completedAt
	faultedAt
	cancelledAt
	retriedAt
	updatedAt
	updatetAt // so misspelt by version 7 of the Java SDK
	fieldCount
)

// fieldOf returns the field of that name.
func fieldOf(key string) (field, bool) {
	for f, known := range fieldNames {
		if key == known {
			return field(f), true
		}
	}
	return 0, false
}

// fieldNames is read-only.
var fieldNames = [fieldCount]string{
	"instanceId", "workflowName", "workflowNamespace", "workflowVersion", "status", "startTime", "endTime", "lastUpdateTime",
	"input", "output", "error", "taskExecutionId", "taskName", "taskPosition", "iteration", "attempt",
	"name", "workflow", "task", "definition",
	"createdAt", "startedAt", "suspendedAt", "resumedAt", "completedAt", "faultedAt", "cancelledAt", "retriedAt", "updatedAt", "updatetAt",
}

// members are the values of an object's known fields; nil where it has none. A null
// counts as none.
type members [fieldCount]json.RawMessage

// readMembers returns the known fields of a JSON document, which is valid. Unlike
// encoding/json it takes names as they are, in upper and lower case, and refuses one
// that occurs twice: two readers might not agree which one counts.
func readMembers(doc []byte) (*members, error) {
	if !isObject(doc) {
		return nil, defect(topics.CodeInvalidData, "data", "is not a JSON object")
	}
	var m members
	for key, value := range topics.Members(doc) {
		f, known := fieldOf(key)
		if !known {
			continue
		}
		if m[f] != nil {
			return nil, defect(topics.CodeAmbiguousField, "data", "has a field twice")
		}
		m[f] = value
	}
	for f := range m {
		if string(m[f]) == "null" {
			m[f] = nil
		}
	}
	return &m, nil
}

func (m *members) present(f field) bool { return m[f] != nil }

// pointer is where the field stands in the data.
func pointer(f field) string { return "/" + fieldNames[f] }

// text returns a field as text: that of a string, of a number or of a boolean.
func (m *members) text(f field) (string, error) {
	if m[f] == nil {
		return "", nil
	}
	return textOf(m[f], pointer(f))
}

func textOf(raw json.RawMessage, at string) (string, error) {
	switch {
	case raw == nil || string(raw) == "null":
		return "", nil
	case raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0:
		return string(raw[1 : len(raw)-1]), nil
	case raw[0] == '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", defect(CodeInvalidField, at, "is not text")
		}
		return s, nil
	case raw[0] == '{' || raw[0] == '[':
		return "", defect(CodeInvalidField, at, "is not text")
	}
	return string(raw), nil
}

// key returns a field that is part of a table's key.
func (m *members) key(f field) (string, error) {
	s, err := m.text(f)
	if err != nil {
		return "", err
	}
	if len(s) > MaxKeyBytes {
		return "", defect(CodeUnusableKey, pointer(f), "has "+strconv.Itoa(len(s))+" bytes, "+strconv.Itoa(MaxKeyBytes)+" are allowed")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return "", defect(CodeUnusableKey, pointer(f), "contains a NUL character")
	}
	return s, nil
}

// time returns the first of the fields that is there, as a time.
func (m *members) time(fields ...field) (time.Time, error) {
	for _, f := range fields {
		if m[f] == nil {
			continue
		}
		text, err := m.text(f)
		if err != nil || text == "" {
			return time.Time{}, err
		}
		at, err := ParseTimestamp(text)
		if err != nil {
			return time.Time{}, defect(CodeInvalidTimestamp, pointer(f), err.Error())
		}
		return at, nil
	}
	return time.Time{}, nil
}

// count returns a field as a number that is not negative, 0 where it is missing.
func (m *members) count(f field) (int, error) {
	if m[f] == nil {
		return 0, nil
	}
	n, err := integer(m[f], pointer(f))
	if err == nil && n < 0 {
		err = defect(CodeInvalidField, pointer(f), "is negative")
	}
	return n, err
}

// integer reads a whole number of 32 bits, also one that is written with a fraction
// of zeros or as text.
func integer(raw json.RawMessage, at string) (int, error) {
	text, err := textOf(raw, at)
	if err != nil || text == "" {
		return 0, err
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 32)
	if err != nil || strings.Trim(fraction, "0") != "" {
		return 0, defect(CodeInvalidField, at, "is not a whole number of 32 bits")
	}
	return int(n), nil
}

// fault returns what the error field says, or nil.
func (m *members) fault() (*topics.LifecycleError, error) {
	raw := m[errorField]
	if raw == nil {
		return nil, nil
	}
	if !isObject(raw) {
		detail, err := m.text(errorField)
		return &topics.LifecycleError{Detail: detail}, err
	}
	var e topics.LifecycleError
	for key, value := range topics.Members(raw) {
		var err error
		switch key {
		case "type":
			e.Type, err = textOf(value, "/error/type")
		case "title":
			e.Title, err = textOf(value, "/error/title")
		case "detail":
			e.Detail, err = textOf(value, "/error/detail")
		case "instance":
			e.Instance, err = textOf(value, "/error/instance")
		case "status":
			e.Status, err = integer(value, "/error/status")
		}
		if err != nil {
			return nil, err
		}
	}
	return &e, nil
}

// isObject reports whether a JSON document is an object.
func isObject(doc []byte) bool {
	doc = bytes.TrimLeft(doc, " \t\r\n")
	return len(doc) > 0 && doc[0] == '{'
}
