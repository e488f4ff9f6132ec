package topics

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// WithRecordID returns the record with another id of its event, so that consumers
// take it for another event. Everything else stays byte for byte. The error is a
// *DecodeError: a record that is no event has no id.
func WithRecordID(r Record, id string) (Record, error) {
	env, err := DecodeRecord(r)
	if err != nil {
		return Record{}, err
	}
	out := r
	if structured(r) {
		value, ok := replaceMember(r.Value, "id", id)
		if !ok {
			return Record{}, fault(CodeMalformedJSON, "id", "cannot be replaced")
		}
		out.Value = value
	} else {
		out.Headers = slices.Clone(r.Headers)
		for i, h := range out.Headers {
			if h.Key == headerID || h.Key == HeaderWatermillUUID && string(h.Value) == env.ID {
				out.Headers[i].Value = []byte(id)
			}
		}
	}
	renamed, err := DecodeRecord(out)
	if err != nil {
		return Record{}, err
	}
	if renamed.ID != id {
		return Record{}, fault(CodeInvalidAttribute, "id", "cannot be replaced")
	}
	return out, nil
}

// structured reports whether the event of a record that can be decoded is in its
// value, and not in its headers.
func structured(r Record) bool {
	attributes := false
	for _, h := range r.Headers {
		if strings.EqualFold(h.Key, HeaderContentType) {
			return baseMediaType(string(h.Value)) == mediaTypeStructured
		}
		attributes = attributes || strings.HasPrefix(h.Key, HeaderPrefix)
	}
	return !attributes
}

// replaceMember replaces the text of a member of a JSON object.
func replaceMember(object []byte, name, text string) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return nil, false
		}
		if key == name {
			end := int(dec.InputOffset())
			quoted, _ := json.Marshal(text) // text always can be
			return slices.Concat(object[:end-len(raw)], quoted, object[end:]), true
		}
	}
	return nil, false
}
