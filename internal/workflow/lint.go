package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/expr"
)

// The bounds of a definition.
const (
	// MaxText is how many bytes its text may have.
	MaxText = 1 << 20
	// MaxSteps is how many steps it may have.
	MaxSteps = 2000
	// maxExpressions is how many expressions it may have.
	maxExpressions = 5000
	// MaxID is how many characters the ids of definitions and of steps may have.
	MaxID = 256
	// maxFaults is how many faults are told, maxGuesses how many of them with a guess at
	// what was meant.
	maxFaults  = 200
	maxGuesses = 20
)

// Lint reads a definition and returns it with all its faults and warnings, in the order of
// the text. The definition is nil when the text is no JSON; with faults that are no
// warnings it is as far as it could be read.
func Lint(text []byte) (*Definition, []Fault) {
	l := &linter{document: &document{text: text}}
	if len(text) > MaxText {
		l.fault(codeTooLarge, place{}, "", "the definition has %d bytes, at most %d are allowed", len(text), MaxText)
		return nil, l.faults
	}
	d := l.read()
	if d == nil {
		return nil, l.faults
	}
	l.check(d)
	return d, Sorted(l.faults)
}

// Parse reads a definition. Members keep their order where it counts, numbers their
// spelling. The error is a *FaultsError with what is wrong with the text as such: what is
// no JSON, has a type that does not fit or is there twice. The rest is for Lint and Compile.
func Parse(text []byte) (*Definition, error) {
	l := &linter{document: &document{text: text}}
	d := l.read()
	if err := Refused(Sorted(l.faults)); err != nil {
		return nil, err
	}
	return d, nil
}

// linter gathers the faults of a definition.
type linter struct {
	// document is nil when the definition has no text.
	document *document
	*Definition
	faults []Fault
	// reported are the paths that have a fault already.
	reported map[string]bool
	// more is set when there are more faults than are told; guesses counts hints.
	more    bool
	guesses int
	// expressions counts those that were compiled.
	expressions int
	// fields are those of the structs that were met.
	fields map[reflect.Type]structFields
	graph  *graph
}

// read reads the text as such.
func (l *linter) read() *Definition {
	document, err := readDocument(l.document.text)
	l.document = document
	if err != nil {
		l.faultAt(err.offset, Fault{Code: codeSyntax, Message: err.message, Hint: err.hint})
		return nil
	}
	d := new(Definition)
	l.decode(document.root, reflect.ValueOf(d).Elem(), place{})
	if document.root.kind != objectNode {
		if document.root.kind == nullNode {
			l.fault(codeType, place{}, "", "the definition is an object, not null")
		}
		return nil
	}
	return d
}

// check reports all that is wrong with what a definition says.
func (l *linter) check(d *Definition) {
	l.Definition = d
	l.checkDefinition()
	if len(d.Steps) > MaxSteps {
		l.fault(codeTooLarge, at("steps"), "", "the definition has %d steps, at most %d are allowed", len(d.Steps), MaxSteps)
		return
	}
	l.graph = l.newGraph()
	for i := range d.Steps {
		l.checkStep(i, &d.Steps[i])
	}
	if len(d.Steps) > 0 {
		l.checkGraph()
		l.checkForks()
	}
}

// fault reports what makes the definition unusable, warn what is only likely to be wrong.
func (l *linter) fault(code string, where place, hint, format string, args ...any) {
	l.report(where, Fault{Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (l *linter) warn(code string, where place, hint, format string, args ...any) {
	l.report(where, Fault{Code: code, Hint: hint, Message: fmt.Sprintf(format, args...), Warning: true})
}

// report adds a fault about a place.
func (l *linter) report(where place, f Fault) {
	if l.full(f) {
		return
	}
	f.Path, f.Pointer = where.String(), where.pointer()
	if l.document == nil {
		l.add(f)
		return
	}
	l.faultAt(l.document.find(where), f)
}

// full says whether a fault would not be told any more.
func (l *linter) full(f Fault) bool {
	return len(l.faults) >= maxFaults && (f.Warning || l.more)
}

// faultAt adds a fault at an offset of the text.
func (l *linter) faultAt(offset int, f Fault) {
	f.Line, f.Column = l.document.place(offset)
	l.add(f)
}

func (l *linter) add(f Fault) {
	if l.reported == nil {
		l.reported = map[string]bool{}
	}
	l.reported[f.Path] = l.reported[f.Path] || !f.Warning
	switch {
	case len(l.faults) < maxFaults:
		l.faults = append(l.faults, f)
	case !l.full(f):
		// Whatever else is told, what cannot be used must not seem usable.
		l.more = true
		f.Message += " (and there are more faults)"
		l.faults[maxFaults-1] = f
	}
}

// require reports a field that must be there and is empty.
func (l *linter) require(where place, empty bool, hint, format string, args ...any) {
	if empty && !l.reported[where.String()] {
		l.fault(codeRequired, where, hint, format, args...)
	}
}

// guess returns a hint at the name that was meant.
func (l *linter) guess(wrong string, names []string) string {
	if l.guesses++; l.guesses > maxGuesses {
		return ""
	}
	return didYouMean(wrong, names)
}

// expression reports an expression that does not parse. It says whether it does.
func (l *linter) expression(where place, source string) bool {
	if l.expressions++; l.expressions > maxExpressions {
		if l.expressions == maxExpressions+1 {
			l.fault(codeTooLarge, where, "", "the definition has more than %d expressions", maxExpressions)
		}
		return false
	}
	_, err := CompileExpression(source)
	if err == nil || l.full(Fault{}) {
		return err == nil
	}
	message := err.Error()
	var syntax *expr.SyntaxError
	if errors.As(err, &syntax) {
		message = syntax.Message // the place is the fault's
	}
	fault := Fault{Code: codeExpression, Path: where.String(), Pointer: where.pointer(), Message: fmt.Sprintf("the expression %s does not parse: %s", abridged(source), message)}
	if strings.Count(source, "${") > 1 {
		fault.Hint = `texts are put together with +, as in ${first + " " + last}`
	}
	if l.document == nil {
		l.add(fault)
		return false
	}
	start := l.document.find(where)
	if syntax != nil && syntax.Line == 1 && l.document.plain(start) {
		start += 1 + len(string([]rune(source)[:min(syntax.Column-1, len([]rune(source)))]))
	}
	l.faultAt(start, fault)
	return false
}

// abridged quotes a text, and no more than its beginning if it is long.
func abridged(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-3]) + "..."
	}
	return strconv.Quote(text)
}

// place is where something stands in a document: the names and the positions that lead
// to it from the root.
type place struct {
	elements []any
	// name is set when the name of the last element is meant, and not its value.
	name bool
}

// at returns the place that elements, names and positions, lead to.
func at(elements ...any) place { return place{elements: elements} }

// with returns a place within p.
func (p place) with(elements ...any) place {
	return place{elements: append(slices.Clip(p.elements), elements...)}
}

// key returns the place of the name of a member of p.
func (p place) key(name string) place {
	key := p.with(name)
	key.name = true
	return key
}

// String gives the place as steps[2].nextStep; names that are no identifiers are quoted.
func (p place) String() string {
	var out strings.Builder
	for _, element := range p.elements {
		switch element := element.(type) {
		case int:
			fmt.Fprintf(&out, "[%d]", element)
		case string:
			switch {
			case !isIdentifier(element):
				fmt.Fprintf(&out, "[%q]", element)
			case out.Len() > 0:
				out.WriteString("." + element)
			default:
				out.WriteString(element)
			}
		}
	}
	return out.String()
}

// pointer gives the place as a JSON pointer.
func (p place) pointer() string {
	var out strings.Builder
	for _, element := range p.elements {
		out.WriteByte('/')
		out.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(element)))
	}
	return out.String()
}

// subject is what a message calls the place.
func (p place) subject() string {
	if len(p.elements) == 0 {
		return "the definition"
	}
	for i, last := range slices.Backward(p.elements) {
		if name, ok := last.(string); ok {
			if i < len(p.elements)-1 {
				return "each of " + name
			}
			return name
		}
	}
	return "the value"
}

func isIdentifier(text string) bool {
	for i, c := range text {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != ""
}

// find returns the offset of a place, or that of the innermost one around it that there is.
func (d *document) find(where place) int {
	n := d.root
	if n == nil {
		return 0
	}
	for i, element := range where.elements {
		var inner *node
		switch element := element.(type) {
		case int:
			if element < len(n.items) {
				inner = n.items[element]
			}
		case string:
			if m := n.member(element); m != nil {
				if where.name && i == len(where.elements)-1 {
					return m.at
				}
				inner = m.value
			}
		}
		if inner == nil {
			break
		}
		n = inner
	}
	return n.start
}

// plain says whether the string at an offset is written without escapes.
func (d *document) plain(offset int) bool {
	if offset >= len(d.text) || d.text[offset] != '"' {
		return false
	}
	for _, c := range d.text[offset+1:] {
		if c == '"' || c == '\\' {
			return c == '"'
		}
	}
	return false
}
