package topics

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// SpecVersion is the version of CloudEvents that Millrace speaks.
	SpecVersion = "1.0"
	// DefaultSource is the source of events that Millrace writes.
	DefaultSource = "/millrace"
	// ContentTypeJSON is the content type of the data that Millrace writes.
	ContentTypeJSON = "application/json"
	// MaxAttributeBytes bounds id, source, type and subject, because they are
	// stored in indexed columns. CloudEvents itself has no bound.
	MaxAttributeBytes = 1024
)

// EnvelopeOption sets an attribute of a new envelope.
type EnvelopeOption func(*Envelope)

// WithID sets the id. The default is a new UUIDv7.
func WithID(id string) EnvelopeOption { return func(e *Envelope) { e.ID = id } }

// WithSource sets the source. The default is DefaultSource.
func WithSource(source string) EnvelopeOption { return func(e *Envelope) { e.Source = source } }

// WithTime sets when the fact happened. The default is now.
func WithTime(t time.Time) EnvelopeOption { return func(e *Envelope) { e.Time = t.UTC() } }

// WithSequence sets the version of the aggregate after the event, from 1.
func WithSequence(n int64) EnvelopeOption { return func(e *Envelope) { e.Sequence = n } }

// WithTrace sets the W3C trace context. Empty texts are left out.
func WithTrace(parent, state string) EnvelopeOption {
	return func(e *Envelope) { e.TraceParent, e.TraceState = parent, state }
}

// WithCause makes the event one that cause led to: it takes over the correlation
// id (the id of cause when that has none), the trace, and names cause by its id.
func WithCause(cause Envelope) EnvelopeOption {
	return func(e *Envelope) {
		e.CorrelationID, e.CausationID = cause.CorrelationID, cause.ID
		if e.CorrelationID == "" {
			e.CorrelationID = cause.ID
		}
		e.TraceParent, e.TraceState = cause.TraceParent, cause.TraceState
	}
}

// WithCorrelation sets the correlation and causation ids. Empty texts are left
// out.
func WithCorrelation(correlation, causation string) EnvelopeOption {
	return func(e *Envelope) { e.CorrelationID, e.CausationID = correlation, causation }
}

// WithExtension sets a further attribute.
func WithExtension(name, value string) EnvelopeOption {
	return func(e *Envelope) {
		if e.Extensions == nil {
			e.Extensions = make(map[string]string, 1)
		}
		e.Extensions[name] = value
	}
}

// ExtensionTenant and ExtensionUser are the attributes by which an event says whose
// doing it is about, so that whoever follows a topic can leave out what is not theirs
// without asking a database.
const (
	ExtensionTenant = "tenant"
	ExtensionUser   = "user"
)

// WithOwner sets whose doing the event is about. Empty texts are left out.
func WithOwner(tenant, user string) EnvelopeOption {
	return func(e *Envelope) {
		if tenant != "" {
			WithExtension(ExtensionTenant, tenant)(e)
		}
		if user != "" {
			WithExtension(ExtensionUser, user)(e)
		}
	}
}

// Owner returns whose doing the event is about; empty texts where it does not say.
func (e Envelope) Owner() (tenant, user string) {
	return e.Extensions[ExtensionTenant], e.Extensions[ExtensionUser]
}

// NewEnvelope wraps e: data as JSON, type and subject from e, a new id, the
// current time. The dataschema is set for types of the catalogue. It fails when e
// cannot be marshalled or an option gave an attribute that Validate refuses; the
// data is not held against its schema, since the writer's types and tests are
// what vouches for it.
func NewEnvelope(e Event, options ...EnvelopeOption) (Envelope, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return Envelope{}, fmt.Errorf("marshal %s: %w", e.EventType(), err)
	}
	env := Envelope{
		Source:          DefaultSource,
		Type:            e.EventType(),
		Subject:         e.EventKey(),
		DataContentType: ContentTypeJSON,
		Data:            data,
	}
	if _, ok := Lookup(env.Type); ok {
		env.DataSchema = SchemaURI(env.Type)
	}
	for _, option := range options {
		option(&env)
	}
	if env.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return Envelope{}, fmt.Errorf("make an event id: %w", err)
		}
		env.ID = id.String()
	}
	if env.Time.IsZero() {
		env.Time = time.Now().UTC()
	}
	if err := env.Validate(); err != nil {
		return Envelope{}, fmt.Errorf("new envelope of %s: %w", env.Type, err)
	}
	return env, nil
}

// Identity returns the pair that makes the event the same event wherever and
// however often it turns up.
func (e Envelope) Identity() (source, id string) { return e.Source, e.ID }

// Clone returns a copy that shares no memory with e.
func (e Envelope) Clone() Envelope {
	e.Extensions = maps.Clone(e.Extensions)
	if e.Data != nil {
		e.Data = append([]byte{}, e.Data...)
	}
	return e
}

// Validate checks the attributes, not the data: what it accepts, Record and
// EncodeJSON write so that every reader of CloudEvents understands it. The error
// is a *DecodeError.
func (e Envelope) Validate() error {
	if err := e.checkWritable(); err != nil {
		return err
	}
	if e.Sequence < 0 {
		return fault(CodeInvalidAttribute, "sequence", "is negative")
	}
	for _, name := range e.extensionNames() {
		if !validExtensionName(name) {
			return fault(CodeInvalidAttribute, printable(name), "the name of an extension is lower-case letters and digits")
		}
		if reservedAttribute(name) && (name != "sequence" || e.Sequence != 0) {
			return fault(CodeInvalidAttribute, name, "is an attribute of its own, not an extension")
		}
	}
	return nil
}

// checkWritable checks what must hold for the attributes to be written at all;
// every envelope that was read passes.
func (e Envelope) checkWritable() *DecodeError {
	if err := e.checkAttributes(); err != nil {
		return err
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 {
		return fault(CodeInvalidTime, "time", "RFC 3339 has years 0 to 9999 only")
	}
	for _, a := range [...][2]string{
		{"traceparent", e.TraceParent},
		{"tracestate", e.TraceState},
		{"correlationid", e.CorrelationID},
		{"causationid", e.CausationID},
	} {
		if err := checkText(a[0], a[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkAttributes holds the rules that apply to what we write and to what we
// read. Names of extensions are not among them: a foreign producer's odd name
// does not make its event unusable.
func (e Envelope) checkAttributes() *DecodeError {
	for _, a := range [...]struct {
		name, value string
		required    bool
		limit       int
	}{
		{"id", e.ID, true, MaxAttributeBytes},
		{"source", e.Source, true, MaxAttributeBytes},
		{"type", e.Type, true, MaxAttributeBytes},
		{"subject", e.Subject, false, MaxAttributeBytes},
		{"dataschema", e.DataSchema, false, 0},
		{"datacontenttype", e.DataContentType, false, 0},
	} {
		switch {
		case a.value == "" && a.required:
			return fault(CodeMissingAttribute, a.name, "is missing or empty")
		case a.limit > 0 && len(a.value) > a.limit:
			return fault(CodeAttributeTooLong, a.name, fmt.Sprintf("has %d bytes, %d are allowed", len(a.value), a.limit))
		}
		if err := checkText(a.name, a.value); err != nil {
			return err
		}
	}
	for name, value := range e.Extensions {
		if !utf8.ValidString(value) || !utf8.ValidString(name) {
			return fault(CodeInvalidUTF8, printable(name), "is not UTF-8")
		}
		// Other control characters occur in the wild, in error texts for one; a
		// NUL cannot be stored.
		if strings.IndexByte(value, 0) >= 0 || strings.IndexByte(name, 0) >= 0 {
			return fault(CodeInvalidAttribute, printable(name), "contains a NUL character")
		}
	}
	return nil
}

// checkText holds the rule of CloudEvents for text: UTF-8 without control
// characters.
func checkText(name, s string) *DecodeError {
	plain := true
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return nil
	}
	if !utf8.ValidString(s) {
		return fault(CodeInvalidUTF8, name, "is not UTF-8")
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return fault(CodeInvalidAttribute, name, "contains a control character")
		}
	}
	return nil
}

// reservedAttribute reports whether an attribute has a field of its own in
// Envelope, or a meaning that no extension may take.
func reservedAttribute(name string) bool {
	switch name {
	case "id", "source", "type", "specversion", "time", "subject", "dataschema", "datacontenttype",
		"sequence", "traceparent", "tracestate", "correlationid", "causationid", "data", "data_base64":
		return true
	}
	return false
}

func validExtensionName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// printable makes the name of an attribute safe to show, whatever it is.
func printable(name string) string {
	const limit = 64
	if len(name) > limit {
		name = name[:limit] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f {
			return '?'
		}
		return r
	}, name)
}
