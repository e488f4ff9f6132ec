package lifecycle

import (
	"encoding/json"
	"strconv"
	"strings"
)

const (
	// maxDepth is how deep a document may be nested: PostgreSQL's parser needs stack for
	// each level, and so does everybody who reads the document later.
	maxDepth = 512
	// maxDigits is how large the exponent of a number may be, and how many digits it may
	// have. PostgreSQL could hold somewhat more, and writes every zero of 1e100000.
	maxDigits = 1000
)

// Storable returns a JSON document as PostgreSQL's jsonb can hold it, and whether that
// is another one. In texts, a NUL and half a surrogate pair become U+FFFD; a number
// that is out of range becomes a text of the same digits; a document that is nested
// more than 512 deep becomes one text, which holds it as it was. The document is valid
// JSON or nil, and is not changed.
func Storable(doc json.RawMessage) (json.RawMessage, bool) {
	s := storing{doc: doc}
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			i = s.text(i)
		case c == '{' || c == '[':
			if s.depth++; s.depth > maxDepth {
				quoted, _ := json.Marshal(string(doc)) // a string always can be
				return quoted, true
			}
			i++
		case c == '}' || c == ']':
			s.depth--
			i++
		case c == '-' || c >= '0' && c <= '9':
			i = s.number(i)
		default:
			i++
		}
	}
	if s.out == nil {
		return doc, false
	}
	return append(s.out, doc[s.copied:]...), true
}

// storing is a document on its way.
type storing struct {
	doc    []byte
	depth  int
	out    []byte // nil as long as nothing had to be replaced
	copied int    // how much of doc is in out
}

// replace writes text in the place of doc[from:to].
func (s *storing) replace(from, to int, text string) {
	s.out = append(append(s.out, s.doc[s.copied:from]...), text...)
	s.copied = to
}

// text passes over a string, and mends its escapes.
func (s *storing) text(i int) int {
	end := endOfString(s.doc, i)
	for i++; i < end-1; i++ {
		if s.doc[i] != '\\' {
			continue
		}
		i++
		if s.doc[i] != 'u' {
			continue
		}
		// The escape stands from i-1 to i+5.
		unit := hexUnit(s.doc, i+1)
		switch {
		case unit == 0 || unit >= 0xdc00 && unit < 0xe000:
			s.replace(i-1, i+5, `\ufffd`)
		case unit >= 0xd800 && unit < 0xdc00:
			if i+6 < end && s.doc[i+5] == '\\' && s.doc[i+6] == 'u' {
				if low := hexUnit(s.doc, i+7); low >= 0xdc00 && low < 0xe000 {
					i += 10
					continue
				}
			}
			s.replace(i-1, i+5, `\ufffd`)
		}
		i += 4
	}
	return end
}

// hexUnit reads four hexadecimal digits; -1 when there are none.
func hexUnit(doc []byte, i int) int {
	if i+4 > len(doc) {
		return -1
	}
	n, err := strconv.ParseUint(string(doc[i:i+4]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

// number passes over a number.
func (s *storing) number(i int) int {
	end := i + 1
	for end < len(s.doc) && strings.IndexByte("0123456789+-.eE", s.doc[end]) >= 0 {
		end++
	}
	if !storableNumber(s.doc[i:end]) {
		s.replace(i, end, `"`+string(s.doc[i:end])+`"`)
	}
	return end
}

func storableNumber(literal []byte) bool {
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(string(literal)), "e")
	if len(mantissa) > maxDigits {
		return false
	}
	if !scientific {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -maxDigits && n <= maxDigits
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
