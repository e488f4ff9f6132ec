package lifecycle

import (
	"bytes"
	"encoding/json"
)

// walk is how a walk through an object ended.
type walk uint8

const (
	walked    walk = iota
	stopped        // the visitor had enough
	notObject      // there was nothing to walk through
)

// eachMember calls visit for every member of a JSON object, in the order in which they
// stand, until it returns false. The document has been found to be valid; of one that
// is not, it visits what it makes out and does not panic.
func eachMember(doc []byte, visit func(key string, value json.RawMessage) bool) walk {
	i := skipSpace(doc, 0)
	if i == len(doc) || doc[i] != '{' {
		return notObject
	}
	for i = skipSpace(doc, i+1); i < len(doc) && doc[i] != '}'; {
		if doc[i] == ',' {
			i = skipSpace(doc, i+1)
			continue
		}
		keyEnd := endOfValue(doc, i)
		key := keyText(doc[i:keyEnd])
		i = skipSpace(doc, keyEnd)
		i = skipSpace(doc, i+1) // the colon
		end := endOfValue(doc, i)
		if end == i {
			return walked
		}
		if !visit(key, doc[i:end:end]) {
			return stopped
		}
		i = skipSpace(doc, end)
	}
	return walked
}

// keyText returns the text of a quoted key.
func keyText(quoted []byte) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // valid, or a key that nobody knows
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
