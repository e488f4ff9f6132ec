package trigger

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/server/strictjson"
)

// The codes of faults. They are part of the interface and do not change.
const (
	// The text.
	CodeSyntax    = "syntax"
	CodeUnknown   = "unknown_field"
	CodeDuplicate = "duplicate_field"
	CodeWrongType = "wrong_type"
	CodeTooLarge  = "too_large"
	// Fields.
	CodeRequired   = "required"
	CodeConflict   = "conflict"
	CodeInvalid    = "invalid"
	CodeRange      = "out_of_range"
	CodeTooLong    = "too_long"
	CodeExpression = "bad_expression"
	CodeVariable   = "unknown_variable"
	CodeSecret     = "secret_not_allowed"
	CodeImmutable  = "immutable"
	// Warnings.
	CodeGroupReused = "group_reused"
	CodeUnordered   = "unordered_target"
	CodeNoWorkflow  = "unknown_workflow"
	CodeNoEffect    = "no_effect"
	CodeNoValue     = "no_value"
	CodeInjection   = "script_injection"
	CodeLoop        = "own_topic"
	CodeOpen        = "unauthenticated"
	CodeWeak        = "weak_signature"
	CodePlaintext   = "plaintext"
)

// Fault is something that is wrong with a definition or, if it is a Warning, that
// probably is not what was meant.
type Fault struct {
	// Line and Column say where, from 1; 0 where there was no text.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Pointer is the JSON pointer (RFC 6901) of the field; empty: the definition as a whole.
	Pointer string `json:"pointer"`
	// Code is one of the Code constants, or one of those of an executor's spec.
	Code string `json:"code"`
	// Message says what is wrong, without repeating the pointer and without values that may
	// be secret. Hint says what to do, if there is more to say.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty"`
}

// String gives the fault as a compiler would: 3:14: error: /kafka/topics is required
// [required].
func (f Fault) String() string {
	var out strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&out, "%d:%d: ", f.Line, f.Column)
	}
	kind := "error: "
	if f.Warning {
		kind = "warning: "
	}
	out.WriteString(kind)
	if f.Pointer != "" {
		out.WriteString(f.Pointer + " ")
	}
	fmt.Fprintf(&out, "%s [%s]", f.Message, f.Code)
	if f.Hint != "" {
		out.WriteString("; " + f.Hint)
	}
	return out.String()
}

// FaultsError tells all that is wrong with a definition at once.
type FaultsError struct {
	// Faults are in the order of the fields, with the warnings among them.
	Faults []Fault
}

// Error lists the faults that are no warnings.
func (e *FaultsError) Error() string {
	var texts []string
	for _, f := range e.Faults {
		if !f.Warning {
			texts = append(texts, strings.TrimPrefix(f.String(), "error: "))
		}
	}
	noun := " faults: "
	if len(texts) == 1 {
		noun = " fault: "
	}
	return "the trigger has " + strconv.Itoa(len(texts)) + noun + strings.Join(texts, "; ")
}

// Refused returns faults as a *FaultsError if one is more than a warning, else nil.
func Refused(faults []Fault) error {
	for _, f := range faults {
		if !f.Warning {
			return &FaultsError{Faults: faults}
		}
	}
	return nil
}

// checker gathers the faults of a definition.
type checker struct {
	faults []Fault
	json   *strictjson.Decoder
	// templates are those of the target.
	templates []*template
}

func (c *checker) add(pointer, code, format string, args ...any) *Fault {
	c.faults = append(c.faults, Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	return &c.faults[len(c.faults)-1]
}

func (c *checker) warn(pointer, code, format string, args ...any) *Fault {
	f := c.add(pointer, code, format, args...)
	f.Warning = true
	return f
}

// hint says what to do about a fault that was just added.
func (f *Fault) hint(format string, args ...any) { f.Hint = fmt.Sprintf(format, args...) }
