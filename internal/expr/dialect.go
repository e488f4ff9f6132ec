package expr

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// rewrite turns the dialect of AnyNames into the language: #name into name, ${...} into
// (...), contains(a, b) into a call. What is in a string stays as it is. The result has as many
// characters as the source, so that columns stay right.
func rewrite(source string) (string, error) {
	r := rewriter{in: source}
	r.out.Grow(len(source))
	for r.at < len(source) {
		if err := r.step(); err != nil {
			return "", err
		}
	}
	if n := len(r.braces); n > 0 && r.braces[n-1].dollar {
		return "", r.fault(r.braces[n-1].at, "unterminated ${: the } is missing")
	}
	return r.out.String(), nil
}

type rewriter struct {
	in     string
	at     int
	out    strings.Builder
	braces []brace
	// operand is true after a value, where contains is an operator.
	operand bool
}

// brace is a { that is open, and whether it came with a $.
type brace struct {
	dollar bool
	at     int
}

// step takes the next token.
func (r *rewriter) step() error {
	rest := r.in[r.at:]
	c, width := utf8.DecodeRuneInString(rest)
	switch {
	case c == '\'' || c == '"' || c == '`':
		return r.text(c)
	case strings.HasPrefix(rest, "${"):
		r.braces = append(r.braces, brace{dollar: true, at: r.at})
		r.put(2, " (", false)
	case c == '#' && wordStart(rest[1:]):
		r.put(1, " ", false)
	case wordStart(rest):
		r.word(rest)
	case c == '{':
		r.braces = append(r.braces, brace{at: r.at})
		r.put(1, "{", false)
	case c == '}':
		r.close()
	case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "/*"):
		return r.fault(r.at, "an expression has no comments")
	case unicode.IsSpace(c):
		r.put(width, rest[:width], r.operand)
	default:
		r.put(width, rest[:width], c == ')' || c == ']' || unicode.IsDigit(c))
	}
	return nil
}

// put takes so many bytes and writes text for them.
func (r *rewriter) put(bytes int, text string, operand bool) {
	r.at += bytes
	r.out.WriteString(text)
	r.operand = operand
}

// text takes a string with its quotes.
func (r *rewriter) text(quote rune) error {
	for i := r.at + 1; i < len(r.in); i++ {
		switch {
		case r.in[i] == '\\' && quote != '`':
			i++
		case r.in[i] == byte(quote):
			r.put(i+1-r.at, r.in[r.at:i+1], true)
			return nil
		}
	}
	return r.fault(r.at, "unterminated string: the "+string(quote)+" is missing")
}

// word takes a name, an operator that is a word, or a keyword.
func (r *rewriter) word(rest string) {
	_, first := utf8.DecodeRuneInString(rest)
	end := strings.IndexFunc(rest[first:], func(c rune) bool { return !wordPart(c) }) + first
	if end < first {
		end = len(rest)
	}
	word := rest[:end]
	called := strings.HasPrefix(strings.TrimLeftFunc(rest[end:], unicode.IsSpace), "(")
	switch word {
	case "contains":
		if called && !r.operand {
			word = containsName
		}
		r.put(end, word, false)
	case "in", "not", "and", "or", "matches", "startsWith", "endsWith", "let", "if", "else":
		r.put(end, word, false)
	default:
		r.put(end, word, true)
	}
}

// close takes a }.
func (r *rewriter) close() {
	text := "}"
	if n := len(r.braces); n > 0 {
		if r.braces[n-1].dollar {
			text = ")"
		}
		r.braces = r.braces[:n-1]
	}
	r.put(1, text, true)
}

// fault returns a SyntaxError at an offset.
func (r *rewriter) fault(at int, message string) error {
	before := r.in[:at]
	line := strings.Count(before, "\n")
	return &SyntaxError{Line: line + 1, Column: utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1, Message: message}
}

func wordStart(text string) bool {
	c, _ := utf8.DecodeRuneInString(text)
	return c == '_' || c == '$' && !strings.HasPrefix(text, "${") || unicode.IsLetter(c)
}

// wordPart says whether c goes on with a name; $ is left to what follows it.
func wordPart(c rune) bool {
	return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c)
}

// plainer says what a fault of the parser is about in the words of the source: what it met,
// not what was made of that.
func plainer(err error, source string) error {
	var fault *SyntaxError
	if !errors.As(err, &fault) || !strings.HasPrefix(fault.Message, "unexpected token ") {
		return err
	}
	lines := strings.Split(source, "\n")
	if fault.Line < 1 || fault.Line > len(lines) {
		return err
	}
	line := []rune(lines[fault.Line-1])
	_, token, quoted := strings.Cut(fault.Message, "(\"")
	switch at := fault.Column - 1; {
	case strings.HasPrefix(fault.Message, "unexpected token EOF"):
		fault.Column = len(line) + 1
		fault.Message = "it ends where something is missing"
	case quoted && utf8.RuneCountInString(token) == len(`x")`) && at >= 0 && at < len(line):
		fault.Message = fmt.Sprintf("unexpected %q", string(line[at]))
	case quoted:
		fault.Message = fmt.Sprintf("unexpected %q", strings.TrimSuffix(token, "\")"))
	}
	return err
}
