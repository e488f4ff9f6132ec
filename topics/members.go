package topics

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members yields the members of a JSON object in the order in which they stand, names
// that occur twice among them, and nothing of anything but an object. The document has
// been found to be valid (json.Valid); of one that is not, it yields what it makes out
// and does not panic. It is many times as fast as a json.Decoder, and the values share
// memory with the document.
func Members(doc []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		i := skipSpace(doc, 0)
		if i == len(doc) || doc[i] != '{' {
			return
		}
		for i = skipSpace(doc, i+1); i < len(doc) && doc[i] != '}'; {
			if doc[i] == ',' {
				i = skipSpace(doc, i+1)
				continue
			}
			keyEnd := endOfValue(doc, i)
			key := unquoted(doc[i:keyEnd])
			i = skipSpace(doc, keyEnd)
			i = skipSpace(doc, i+1) // the colon
			end := endOfValue(doc, i)
			if end == i || !yield(key, doc[i:end:end]) {
				return
			}
			i = skipSpace(doc, end)
		}
	}
}

// unquoted returns the text of a JSON string.
func unquoted(quoted []byte) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // valid, or a text that nobody knows
	return s
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return min(i, len(doc))
}

// endOfValue returns where the value ends that begins at i.
func endOfValue(doc []byte, i int) int {
	if i >= len(doc) {
		return i
	}
	if doc[i] == '"' {
		return endOfString(doc, i)
	}
	for depth := 0; i < len(doc); i++ {
		switch doc[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case '"':
			i = endOfString(doc, i) - 1
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return len(doc)
}

// endOfString returns what follows the closing quote of the string that begins at i.
func endOfString(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(doc)
}
