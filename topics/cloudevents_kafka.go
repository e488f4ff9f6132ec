package topics

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The headers of a record.
const (
	// HeaderPrefix stands before the name of each CloudEvents attribute.
	HeaderPrefix = "ce_"
	// HeaderContentType holds the datacontenttype in binary mode, and tells
	// structured mode.
	HeaderContentType = "content-type"
	// HeaderTraceParent and HeaderTraceState are the W3C trace context.
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
	// HeaderCorrelationID and HeaderCausationID are the ids of the envelope.
	HeaderCorrelationID = "correlationid"
	HeaderCausationID   = "causationid"
	// HeaderWatermillUUID is where a stock Watermill subscriber looks for the id of
	// a message, and where a stock Watermill publisher puts it.
	HeaderWatermillUUID = "_watermill_message_uuid"

	headerID          = "ce_id"
	headerType        = "ce_type"
	headerSource      = "ce_source"
	headerSpecVersion = "ce_specversion"
	headerTime        = "ce_time"
	headerSubject     = "ce_subject"
	headerDataSchema  = "ce_dataschema"
	headerSequence    = "ce_sequence"
)

// Record returns the event in Kafka's binary mode, for the topic with that
// physical name. The key is usually the subject. Of foreign, the headers that are
// not the envelope's own follow, in their order (see ForeignHeaders). The record
// shares Data with e.
//
// Record writes what it is given; an envelope that was put together by hand is
// checked with Validate first.
func (e Envelope) Record(topic string, key []byte, foreign ...Header) Record {
	headers := make([]Header, 0, 14+len(e.Extensions)+len(foreign))
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, Header{Key: name, Value: []byte(value)})
		}
	}
	add(headerID, e.ID)
	add(headerType, e.Type)
	add(headerSource, e.Source)
	add(headerSpecVersion, SpecVersion)
	if !e.Time.IsZero() {
		add(headerTime, e.Time.UTC().Format(time.RFC3339Nano))
	}
	add(headerSubject, e.Subject)
	add(headerDataSchema, e.DataSchema)
	if e.Sequence > 0 {
		add(headerSequence, strconv.FormatInt(e.Sequence, 10))
	}
	add(HeaderContentType, e.DataContentType)
	add(HeaderTraceParent, e.TraceParent)
	add(HeaderTraceState, e.TraceState)
	add(HeaderCorrelationID, e.CorrelationID)
	add(HeaderCausationID, e.CausationID)
	for _, name := range e.extensionNames() {
		if e.ownsExtension(name) {
			headers = append(headers, Header{Key: HeaderPrefix + name, Value: []byte(e.Extensions[name])})
		}
	}
	add(HeaderWatermillUUID, e.ID)
	return Record{Topic: topic, Key: key, Value: e.Data, Headers: append(headers, ForeignHeaders(foreign)...)}
}

// extensionNames returns the names of the extensions in order, so that one
// envelope always gives the same bytes.
func (e Envelope) extensionNames() []string {
	if len(e.Extensions) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(e.Extensions))
}

// ownsExtension reports whether an extension is written as such: a name that has
// a field in Envelope is not, so that no attribute is written twice. A sequence
// that is no number lives among the extensions.
func (e Envelope) ownsExtension(name string) bool {
	return !reservedAttribute(name) || name == "sequence" && e.Sequence == 0
}

// ForeignHeaders returns the headers that are not part of the contract, in their
// order: what a consumer hands on when it publishes a changed event in place of
// the one it read. The values are shared.
func ForeignHeaders(headers []Header) []Header {
	var foreign []Header
	for _, h := range headers {
		if !contractHeader(h.Key) {
			foreign = append(foreign, h)
		}
	}
	return foreign
}

// contractHeader reports whether DecodeRecord gives a header of that name a
// meaning.
func contractHeader(name string) bool {
	switch name {
	case HeaderTraceParent, HeaderTraceState, HeaderCorrelationID, HeaderCausationID, HeaderWatermillUUID:
		return true
	}
	return strings.HasPrefix(name, HeaderPrefix) || strings.EqualFold(name, HeaderContentType)
}

// DecodeRecord reads the event in a record, whatever the mode: structured when
// the content type says so, or when a record without any attribute of CloudEvents
// in its headers holds a JSON object (a producer that sets no headers); binary
// otherwise. Every error is a *DecodeError.
//
// It is lenient where an event stays usable: a trace header that is not text or
// occurs twice, an odd name of an extension, a sequence that is no positive
// integer (kept among the Extensions). The envelope shares Data with the record.
func DecodeRecord(r Record) (Envelope, error) {
	var s headerScan
	if err := s.scan(r.Headers); err != nil {
		return Envelope{}, err
	}
	mediaType := baseMediaType(s.env.DataContentType)
	var env Envelope
	var err *DecodeError
	switch {
	case mediaType == mediaTypeStructured:
		env, err = decodeStructured(r.Value)
	case strings.HasPrefix(mediaType, mediaTypeCloudEvents):
		err = fault(CodeUnsupportedFormat, "datacontenttype", "of the formats of CloudEvents only single events in JSON are read from a topic")
	case s.attributes == 0 && looksLikeObject(r.Value):
		env, err = decodeStructured(r.Value)
	case s.attributes == 0:
		err = fault(CodeNotCloudEvent, "", "no header of CloudEvents and no JSON object as value")
	default:
		s.env.Data = r.Value
		env, err = s.binary()
	}
	if err != nil {
		return Envelope{}, err
	}
	// The context of the hop that brought the record is in its headers, also when
	// the event itself is structured.
	env.TraceParent = firstText(s.env.TraceParent, env.TraceParent)
	env.TraceState = firstText(s.env.TraceState, env.TraceState)
	env.CorrelationID = firstText(s.env.CorrelationID, env.CorrelationID)
	env.CausationID = firstText(s.env.CausationID, env.CausationID)
	return env, nil
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// headerScan collects what the headers of one record say.
type headerScan struct {
	env Envelope
	// attributes counts the headers with the prefix of CloudEvents.
	attributes int
	// watermillID stands in for a missing ce_id.
	watermillID string
	specVersion string
	time        string
	contentType string // ce_datacontenttype, for want of a content-type
	seen        [8]bool
}

func (s *headerScan) scan(headers []Header) error {
	for _, h := range headers {
		name, isAttribute := strings.CutPrefix(h.Key, HeaderPrefix)
		if !isAttribute {
			s.plain(h)
			continue
		}
		s.attributes++
		if !utf8.Valid(h.Value) {
			return fault(CodeInvalidUTF8, printable(name), "is not UTF-8")
		}
		if err := s.attribute(name, string(h.Value)); err != nil {
			return err
		}
	}
	if s.env.DataContentType == "" {
		s.env.DataContentType = s.contentType
	}
	return nil
}

// plain takes a header without prefix. The first of several wins, and one that is
// not text counts as absent: it must not cost the event.
func (s *headerScan) plain(h Header) {
	var field *string
	switch {
	case h.Key == HeaderTraceParent:
		field = &s.env.TraceParent
	case h.Key == HeaderTraceState:
		field = &s.env.TraceState
	case h.Key == HeaderCorrelationID:
		field = &s.env.CorrelationID
	case h.Key == HeaderCausationID:
		field = &s.env.CausationID
	case h.Key == HeaderWatermillUUID:
		field = &s.watermillID
	case strings.EqualFold(h.Key, HeaderContentType):
		field = &s.env.DataContentType
	default:
		return
	}
	if *field == "" {
		*field = textOrNothing(string(h.Value))
	}
}

func (s *headerScan) attribute(name, value string) *DecodeError {
	field, slot := s.slot(name)
	if field != nil {
		if s.seen[slot] {
			return fault(CodeDuplicateAttribute, name, "occurs more than once")
		}
		s.seen[slot] = true
		*field = value
		return nil
	}
	if name == "" || name == "data" || name == "data_base64" {
		return fault(CodeInvalidAttribute, printable(name), "is not the name of an attribute")
	}
	return s.env.addExtension(name, value)
}

// slot returns where the attribute goes, and its place in seen.
func (s *headerScan) slot(name string) (*string, int) {
	switch name {
	case "id":
		return &s.env.ID, 0
	case "type":
		return &s.env.Type, 1
	case "source":
		return &s.env.Source, 2
	case "specversion":
		return &s.specVersion, 3
	case "time":
		return &s.time, 4
	case "subject":
		return &s.env.Subject, 5
	case "dataschema":
		return &s.env.DataSchema, 6
	case "datacontenttype":
		return &s.contentType, 7
	}
	return nil, 0
}

func (s *headerScan) binary() (Envelope, *DecodeError) {
	if s.env.ID == "" {
		s.env.ID = s.watermillID
	}
	if err := s.env.finish(s.specVersion, s.time); err != nil {
		return Envelope{}, err
	}
	return s.env, nil
}
