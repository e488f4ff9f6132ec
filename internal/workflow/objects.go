package workflow

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/millrace/millrace/internal/rawjson"
)

// variable is a member of a JSON object as it is written.
type variable struct {
	// key is the name with its quotes.
	key   []byte
	value json.RawMessage
}

// name returns the name that the key stands for.
func (m variable) name() string { return rawjson.Unquote(m.key) }

// same says whether two members have the same name.
func (m variable) same(other variable) bool {
	if bytes.IndexByte(m.key, '\\') < 0 && bytes.IndexByte(other.key, '\\') < 0 {
		return bytes.Equal(m.key, other.key)
	}
	return m.name() == other.name()
}

// variablesIn goes through a JSON object, which has to be valid and without insignificant
// space.
func variablesIn(object json.RawMessage) iter.Seq[variable] {
	return func(yield func(variable) bool) {
		for i := 1; i < len(object)-1; {
			key := rawjson.EndOfText(object, i)
			value := rawjson.EndOfValue(object, key+1)
			if !yield(variable{key: object[i:key], value: object[key+1 : value : value]}) {
				return
			}
			i = value + 1
		}
	}
}

// merge returns object with the members of patch in place of those of the same name, and
// the others behind them. Of members of one name the last one counts.
func merge(object, patch json.RawMessage) json.RawMessage {
	if len(patch) <= len(emptyObject) {
		return object
	}
	var room [8]variable
	news := variableSet{list: room[:0]}
	for m := range variablesIn(patch) {
		news.put(m)
	}
	merged := objectWriter{text: make([]byte, 0, len(object)+len(patch))}
	var done [8]bool
	written := append(done[:0], make([]bool, len(news.list))...)
	for m := range variablesIn(object) {
		switch at := news.index(m); {
		case at < 0:
			merged.add(m.key, m.value)
		case !written[at]:
			merged.add(m.key, news.list[at].value)
			written[at] = true
		}
	}
	for at, m := range news.list {
		if !written[at] {
			merged.add(m.key, m.value)
		}
	}
	return merged.end()
}

// variableSet are members of different names, in order. Many of them are found by an index,
// a few by looking at each.
type variableSet struct {
	list   []variable
	byName map[string]int
}

func (s *variableSet) index(m variable) int {
	if s.byName != nil {
		if at, ok := s.byName[m.name()]; ok {
			return at
		}
		return -1
	}
	for at := range s.list {
		if s.list[at].same(m) {
			return at
		}
	}
	return -1
}

func (s *variableSet) put(m variable) {
	if at := s.index(m); at >= 0 {
		s.list[at] = m
		return
	}
	s.list = append(s.list, m)
	switch {
	case s.byName != nil:
		s.byName[m.name()] = len(s.list) - 1
	case len(s.list) > 16:
		s.byName = make(map[string]int, 2*len(s.list))
		for at := range s.list {
			s.byName[s.list[at].name()] = at
		}
	}
}

// objectWriter writes a JSON object.
type objectWriter struct{ text []byte }

func (w *objectWriter) add(key []byte, value json.RawMessage) {
	if len(w.text) == 0 {
		w.text = append(w.text, '{')
	} else {
		w.text = append(w.text, ',')
	}
	w.text = append(append(append(w.text, key...), ':'), value...)
}

func (w *objectWriter) end() json.RawMessage {
	if len(w.text) == 0 {
		return emptyObject
	}
	return append(w.text, '}')
}

// single is an object of one member.
func single(name string, value json.RawMessage) json.RawMessage {
	var w objectWriter
	if value == nil {
		value = json.RawMessage("null")
	}
	w.add(rawjson.Quote(nil, name), value)
	return w.end()
}

// list is a JSON list; elements that are nil are null.
func list(elements []json.RawMessage) json.RawMessage {
	size := 2
	for _, e := range elements {
		size += len(e) + 5
	}
	out := append(make([]byte, 0, size), '[')
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		if e == nil {
			e = json.RawMessage("null")
		}
		out = append(out, e...)
	}
	return append(out, ']')
}
