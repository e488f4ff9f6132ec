package trigger

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/topics"
)

// Variables are what the expressions of a target read of a message. What is missing is
// null for them.
type Variables struct {
	// Body is a JSON object: body, and raw as a text. Empty counts as {} where Event is set.
	Body []byte
	// Event holds the attributes of a CloudEvent: event.
	Event *topics.Envelope
	// Key is a text, or base64 of what is no UTF-8: key.
	Key []byte
	// Headers are found by their name as it was received, and in lower case; of several of
	// one name the first counts, and what is no UTF-8 is base64: headers.
	Headers []topics.Header
	// Time is when the message came to be, in UTC as in RFC 3339: time.
	Time time.Time
	// Metadata is a JSON object, the metadata that the origin of the target gets: meta.
	Metadata json.RawMessage
}

// scope is one evaluation of a template: the variables, and what was decoded of them.
type scope struct {
	*Variables
	trigger *Compiled
	made    map[string]any
}

// lookup returns what a path leads to. It is not ok where only an evaluation can tell.
func (s *scope) lookup(path []string) (found value, ok bool) {
	var raw json.RawMessage
	switch path[0] {
	case variableBody:
		raw = s.Body
	case variableMeta:
		raw = s.Metadata
	default:
		if len(path) == 1 {
			return value{made: s.decoded(path[0])}, true
		}
		return value{}, false
	}
	for _, name := range path[1:] {
		if rawjson.First(raw) != '{' {
			return value{}, false // which has words for this
		}
		if raw = rawjson.Member(raw, name); raw == nil {
			raw = json.RawMessage("null")
		}
	}
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	return value{written: raw}, true
}

// decoded returns a variable as expressions calculate with it.
func (s *scope) decoded(name string) any {
	if v, ok := s.made[name]; ok {
		return v
	}
	v := s.decode(name)
	if s.made == nil {
		s.made = make(map[string]any, 4)
	}
	s.made[name] = v
	return v
}

func (s *scope) decode(name string) any {
	switch name {
	case variableBody:
		return decodeJSON(s.Body)
	case variableMeta:
		return decodeJSON(s.Metadata)
	case variableRaw:
		return string(s.Body)
	case variableKey:
		if s.Key == nil {
			return nil
		}
		return printable(s.Key)
	case variableHeaders:
		return headersOf(s.Headers)
	case variableEvent:
		if s.Event == nil {
			return nil
		}
		return attributesOf(s.Event)
	case variableTrigger:
		return map[string]any{
			"id": s.trigger.ID, "uid": s.trigger.UID, "type": string(s.trigger.Type), "revision": int(s.trigger.Revision),
		}
	case variableTime:
		return timeText(s.Time)
	}
	return nil
}

// decodeJSON decodes what is known to be valid JSON.
func decodeJSON(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var v any
	// It is valid.
	_ = decoder.Decode(&v)
	return numbered(v)
}

// printable returns bytes as a text: what is no UTF-8 is base64.
func printable(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func headersOf(headers []topics.Header) map[string]any {
	found := make(map[string]any, len(headers))
	for _, lower := range []bool{false, true} {
		for _, h := range headers {
			name := h.Key
			if lower {
				name = strings.ToLower(name)
			}
			if _, taken := found[name]; !taken {
				found[name] = printable(h.Value)
			}
		}
	}
	return found
}

func attributesOf(e *topics.Envelope) map[string]any {
	found := map[string]any{"id": e.ID, "source": e.Source, "type": e.Type}
	for name, text := range map[string]string{
		"subject": e.Subject, "dataschema": e.DataSchema, "datacontenttype": e.DataContentType,
		"traceparent": e.TraceParent, "tracestate": e.TraceState, "correlationid": e.CorrelationID, "causationid": e.CausationID,
	} {
		if text != "" {
			found[name] = text
		}
	}
	if !e.Time.IsZero() {
		found["time"] = timeText(e.Time)
	}
	if e.Sequence != 0 {
		found["sequence"] = int(e.Sequence)
	}
	for name, text := range e.Extensions {
		if _, taken := found[name]; !taken {
			found[name] = text
		}
	}
	return found
}

func timeText(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}
