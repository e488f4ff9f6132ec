// Package rawjson reads JSON as it is written, without decoding it: values keep all digits of
// their numbers and the order of their members, and cost no more than a look at each byte.
//
// What it is given must be valid JSON, but for First and Space, which look at any text.
// Nothing is copied: what is returned shares the memory of what was given, unless it is said
// to be appended.
package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members goes through a JSON object that is known to be valid: the names with their
// quotes, and the values, as they are written.
func Members(object json.RawMessage) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		i := Space(object, 0) + 1
		for i = Space(object, i); i < len(object) && object[i] == '"'; i = Space(object, i) {
			end := EndOfText(object, i)
			name := object[i:end]
			i = Space(object, Space(object, end)+1) // behind the colon
			end = EndOfValue(object, i)
			if !yield(name, object[i:end:end]) {
				return
			}
			i = Space(object, end) + 1 // behind the comma, or the brace
		}
	}
}

// Items goes through a JSON list that is known to be valid.
func Items(list json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := Space(list, Space(list, 0)+1)
		for i < len(list) && list[i] != ']' {
			end := EndOfValue(list, i)
			if !yield(list[i:end:end]) {
				return
			}
			if i = Space(list, end); i < len(list) && list[i] == ',' {
				i = Space(list, i+1)
			}
		}
	}
}

// Member returns the value of a member of a JSON object; nil: it has none, or is no
// object. Of several of that name the last counts, as for encoding/json.
func Member(object json.RawMessage, name string) json.RawMessage {
	if First(object) != '{' {
		return nil
	}
	var found json.RawMessage
	for quoted, value := range Members(object) {
		if plain := quoted[1 : len(quoted)-1]; string(plain) == name ||
			bytes.IndexByte(plain, '\\') >= 0 && Unquote(quoted) == name {
			found = value
		}
	}
	return found
}

// Unquote returns the text that a JSON string stands for.
func Unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	// It is part of valid JSON.
	_ = json.Unmarshal(quoted, &text)
	return text
}

// Quote appends a text as a JSON string, with < and > as they are.
func Quote(out []byte, text string) []byte {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	// A string can be encoded.
	_ = encoder.Encode(text)
	return append(out, bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))...)
}

// Compact appends a valid JSON value without insignificant space.
func Compact(out []byte, raw json.RawMessage) []byte {
	buffer := bytes.NewBuffer(out)
	// It is valid.
	_ = json.Compact(buffer, raw)
	return buffer.Bytes()
}

// First returns the first byte of a JSON value, which tells its kind.
func First(raw json.RawMessage) byte {
	if i := Space(raw, 0); i < len(raw) {
		return raw[i]
	}
	return 0
}

// Space returns where the next byte is that is not white space.
func Space(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// EndOfText returns where the string that begins at i ends.
func EndOfText(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

// EndOfValue returns where the value that begins at i ends.
func EndOfValue(raw []byte, i int) int {
	for depth := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			if i = EndOfText(raw, i) - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}
