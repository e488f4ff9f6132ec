package topics

import (
	"bytes"
	"slices"
	"strconv"
)

// planWalk is one pass of a plan over a document. Its methods report whether what
// stands at pos is surely valid, and move pos behind it.
type planWalk struct {
	data []byte
	pos  int
}

func (w *planWalk) space() {
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case ' ', '\t', '\n', '\r':
			w.pos++
		default:
			return
		}
	}
}

func (w *planWalk) end() bool {
	w.space()
	return w.pos == len(w.data)
}

// take moves behind c, if c is what comes next.
func (w *planWalk) take(c byte) bool {
	w.space()
	if w.pos < len(w.data) && w.data[w.pos] == c {
		w.pos++
		return true
	}
	return false
}

// value takes a value; a nil plan is one for anything.
func (w *planWalk) value(n *planNode) bool {
	if n == nil {
		return w.skip()
	}
	switch n.kind {
	case planObject:
		return w.object(n)
	case planString:
		return w.text(n)
	case planInteger, planNumber:
		return w.number(n)
	case planBoolean:
		return w.literal("true") || w.literal("false")
	case planArray:
		return w.array(n)
	case planAny:
		return w.skip()
	case planNever:
		return false
	}
	return false
}

func (w *planWalk) literal(s string) bool {
	w.space()
	if bytes.HasPrefix(w.data[w.pos:], []byte(s)) {
		w.pos += len(s)
		return true
	}
	return false
}

func (w *planWalk) object(n *planNode) bool {
	if !w.take('{') {
		return false
	}
	var got uint64
	if !w.take('}') {
		for {
			name, plain, ok := w.quoted()
			if !ok || !plain || !w.take(':') {
				return false
			}
			i := n.field(name)
			sub := n.others
			switch {
			case i >= 0:
				if got&(1<<i) != 0 {
					return false
				}
				got |= 1 << i
				sub = n.fields[i].node
			case n.fieldLike(name) != "":
				return false
			}
			if !w.value(sub) {
				return false
			}
			if w.take(',') {
				continue
			}
			if w.take('}') {
				break
			}
			return false
		}
	}
	return got&n.required == n.required
}

func (n *planNode) field(name []byte) int {
	for i := range n.fields {
		if n.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

func (n *planNode) fieldLike(name []byte) string {
	for i := range n.fields {
		if bytes.EqualFold([]byte(n.fields[i].name), name) {
			return n.fields[i].name
		}
	}
	return ""
}

func (w *planWalk) array(n *planNode) bool {
	if !w.take('[') {
		return false
	}
	if w.take(']') {
		return true
	}
	for {
		if !w.value(n.items) {
			return false
		}
		if w.take(']') {
			return true
		}
		if !w.take(',') {
			return false
		}
	}
}

// quoted moves behind a string and returns what stands between the quotes, and
// whether that is plain: the string itself, without an escape.
func (w *planWalk) quoted() (raw []byte, plain, ok bool) {
	if !w.take('"') {
		return nil, false, false
	}
	start := w.pos
	plain = true
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case '"':
			raw = w.data[start:w.pos]
			w.pos++
			return raw, plain, true
		case '\\':
			plain = false
			w.pos++
		}
		w.pos++
	}
	w.pos = len(w.data)
	return nil, false, false
}

func (w *planWalk) text(n *planNode) bool {
	raw, plain, ok := w.quoted()
	if !ok {
		return false
	}
	// Lengths count characters. There are never more of them than bytes, and of
	// one byte or more there is at least one character.
	if n.maxLength >= 0 && len(raw) > n.maxLength || n.minLength > 1 || n.minLength == 1 && len(raw) == 0 {
		return false
	}
	if n.enum == nil && !n.dateTime && n.matches == nil {
		return true
	}
	return plain &&
		(n.enum == nil || slices.Contains(n.enum, string(raw))) &&
		(!n.dateTime || plainDateTime(raw)) &&
		(n.matches == nil || n.matches(raw))
}

func (w *planWalk) number(n *planNode) bool {
	w.space()
	start := w.pos
	for w.pos < len(w.data) {
		c := w.data[w.pos]
		if (c < '0' || c > '9') && c != '-' && (n.kind == planInteger || c != '.') {
			break
		}
		w.pos++
	}
	// Beyond 15 digits a float64 is no longer exact, and bounds are rarely that far.
	raw := w.data[start:w.pos]
	if len(raw) == 0 || len(raw) > 15 {
		return false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && (n.minimum == nil || f >= *n.minimum) && (n.maximum == nil || f <= *n.maximum)
}

// skip moves behind a value of any kind. It counts brackets rather than parsing:
// that the document is JSON is checked elsewhere.
func (w *planWalk) skip() bool {
	depth := 0
	for {
		w.space()
		if w.pos == len(w.data) {
			return false
		}
		switch w.data[w.pos] {
		case '"':
			if _, _, ok := w.quoted(); !ok {
				return false
			}
		case '{', '[':
			depth++
			w.pos++
		case '}', ']':
			depth--
			w.pos++
		case ',', ':':
			if depth == 0 {
				return false
			}
			w.pos++
			continue
		default:
			w.scalar()
		}
		if depth <= 0 {
			return depth == 0
		}
	}
}

// scalar moves behind a number or a literal.
func (w *planWalk) scalar() {
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case '"', ',', ':', '{', '}', '[', ']', ' ', '\t', '\r', '\n':
			return
		}
		w.pos++
	}
}

// matchesCode matches patternCode.
func matchesCode(b []byte) bool {
	for i, c := range b {
		if (c < 'a' || c > 'z') && (i == 0 || (c < '0' || c > '9') && c != '_') {
			return false
		}
	}
	return len(b) > 0
}

// matchesDuration matches a part of patternDuration: what Go writes for whole
// seconds, and more.
func matchesDuration(b []byte) bool {
	digits, units := 0, 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			digits++
		case digits > 0 && c == 'm' && i+1 < len(b) && b[i+1] == 's':
			i++
			digits, units = 0, units+1
		case digits > 0 && (c == 'h' || c == 'm' || c == 's'):
			digits, units = 0, units+1
		default:
			return false
		}
	}
	return digits == 0 && units > 0
}

// plainDateTime matches the usual part of RFC 3339: capital letters, no leap
// second, and no day after the 28th but for the simple months.
func plainDateTime(b []byte) bool {
	if len(b) < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return false
	}
	year, month, day := digits(b[0:4]), digits(b[5:7]), digits(b[8:10])
	if year < 0 || month < 1 || month > 12 || day < 1 || day > 30 && !longMonth(month) || day > 31 || month == 2 && day > 28 {
		return false
	}
	if !within(digits(b[11:13]), 23) || !within(digits(b[14:16]), 59) || !within(digits(b[17:19]), 59) {
		return false
	}
	rest := b[19:]
	if rest[0] == '.' {
		i := 1
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
			i++
		}
		if i == 1 || i > 10 {
			return false
		}
		rest = rest[i:]
	}
	if len(rest) == 1 {
		return rest[0] == 'Z'
	}
	return len(rest) == len("+00:00") && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':' &&
		within(digits(rest[1:3]), 23) && within(digits(rest[4:6]), 59)
}

func longMonth(m int) bool {
	return m == 1 || m == 3 || m == 5 || m == 7 || m == 8 || m == 10 || m == 12
}

func within(n, most int) bool { return n >= 0 && n <= most }

// digits returns the number that b is, -1 when it is none.
func digits(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}
