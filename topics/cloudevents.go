package topics

import (
	"strconv"
	"strings"
	"time"
)

// What both modes of CloudEvents have in common.

const (
	mediaTypeCloudEvents = "application/cloudevents"
	mediaTypeStructured  = "application/cloudevents+json"

	// ContentTypeStructured is the content type of one event in structured mode.
	ContentTypeStructured = "application/cloudevents+json"
	// ContentTypeBatch is the content type of a batch of events over HTTP.
	ContentTypeBatch = "application/cloudevents-batch+json"
)

// baseMediaType returns a content type without parameters, in lower case.
func baseMediaType(contentType string) string {
	base, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(base))
}

// jsonMediaType reports whether data of that content type is JSON. CloudEvents
// has it that data without a content type is.
func jsonMediaType(contentType string) bool {
	if contentType == "" || contentType == ContentTypeJSON {
		return true
	}
	base := baseMediaType(contentType)
	return base == "application/json" || base == "text/json" || strings.HasSuffix(base, "+json")
}

// addExtension adds an attribute that was read. A second one of the same name is
// an error.
func (e *Envelope) addExtension(name, value string) *DecodeError {
	if _, twice := e.Extensions[name]; twice {
		return fault(CodeDuplicateAttribute, printable(name), "occurs more than once")
	}
	if e.Extensions == nil {
		e.Extensions = make(map[string]string)
	}
	e.Extensions[name] = value
	return nil
}

// takeExtension removes an extension that has a field of its own and returns its
// value.
func (e *Envelope) takeExtension(name string) string {
	value, ok := e.Extensions[name]
	if ok {
		delete(e.Extensions, name)
	}
	return value
}

// textOrNothing returns s unless it is not what CloudEvents calls text: a broken
// trace context or correlation id counts as none, it must not cost the event.
func textOrNothing(s string) string {
	if checkText("", s) != nil {
		return ""
	}
	return s
}

// finish turns what was read into an envelope: extensions with a field of their
// own go there, and every rule is checked.
func (e *Envelope) finish(specVersion, timestamp string) *DecodeError {
	switch specVersion {
	case SpecVersion:
	case "":
		return fault(CodeMissingAttribute, "specversion", "is missing or empty")
	default:
		return fault(CodeUnsupportedSpecVersion, "specversion", "is not "+SpecVersion)
	}
	if timestamp != "" {
		t, ok := parseTime(timestamp)
		if !ok {
			return fault(CodeInvalidTime, "time", "is not a time of RFC 3339")
		}
		e.Time = t
	}
	if err := e.checkAttributes(); err != nil {
		return err
	}
	if len(e.Extensions) == 0 {
		e.Extensions = nil
		return nil
	}
	e.TraceParent = firstText(e.TraceParent, textOrNothing(e.takeExtension("traceparent")))
	e.TraceState = firstText(e.TraceState, textOrNothing(e.takeExtension("tracestate")))
	e.CorrelationID = firstText(e.CorrelationID, textOrNothing(e.takeExtension("correlationid")))
	e.CausationID = firstText(e.CausationID, textOrNothing(e.takeExtension("causationid")))
	if n, ok := parseSequence(e.Extensions["sequence"]); ok {
		e.Sequence = n
		delete(e.Extensions, "sequence")
	}
	if len(e.Extensions) == 0 {
		e.Extensions = nil
	}
	return nil
}

// parseSequence reads a positive decimal integer; leading zeros are common, since
// the extension is meant to sort as text.
func parseSequence(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n > 0
}

// parseTime reads a time of RFC 3339, which allows lower-case letters, and
// returns it in UTC.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t, err = time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	}
	if err != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	// The offset may carry a time at either end out of the years that can be
	// written again.
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Time{}, false
	}
	return t, true
}
