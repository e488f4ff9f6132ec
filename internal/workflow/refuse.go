package workflow

import "fmt"

// refusal is an error of a kind that its text does not repeat.
type refusal struct {
	kind error
	text string
}

// Refuse returns an error that wraps kind and says nothing but the text: the reader is to be
// told what is wrong, and not how errors are sorted.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{kind: kind, text: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// Unwrap lets the kind be found.
func (r *refusal) Unwrap() error { return r.kind }
