package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is something that is wrong with a definition, or, if it is a Warning, that
// probably is not what was meant.
type Fault struct {
	// Line and Column say where, from 1, in characters; 0: the definition has no text.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path says where in the document: steps[2].nextStep. Pointer says the same as a JSON
	// pointer (RFC 6901): /steps/2/nextStep.
	Path    string `json:"path,omitempty"`
	Pointer string `json:"pointer,omitempty"`
	// Code is a stable word; see the list of codes in docs/workflow-format.md.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Hint says what to do, if there is something to say.
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty"`
}

// String gives the fault as a compiler would: 3:14: error: message [code].
func (f Fault) String() string {
	var out strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&out, "%d:%d: ", f.Line, f.Column)
	} else if f.Path != "" {
		out.WriteString(f.Path + ": ")
	}
	kind := "error"
	if f.Warning {
		kind = "warning"
	}
	fmt.Fprintf(&out, "%s: %s [%s]", kind, f.Message, f.Code)
	if f.Hint != "" {
		out.WriteString("; " + f.Hint)
	}
	return out.String()
}

// FaultsError tells all that is wrong with a definition at once.
type FaultsError struct {
	// Faults are in the order of the text, with the warnings among them.
	Faults []Fault
}

// Error lists the faults that are no warnings.
func (e *FaultsError) Error() string {
	var texts []string
	for _, f := range e.Faults {
		if !f.Warning {
			texts = append(texts, f.String())
		}
	}
	noun := " faults"
	if len(texts) == 1 {
		noun = " fault"
	}
	return "the definition has " + strconv.Itoa(len(texts)) + noun + ": " + strings.Join(texts, "; ")
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

// Sorted puts faults into the order of the text, in place.
func Sorted(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return faults
}

// The codes of faults. They are part of the interface and do not change.
const (
	// The text.
	codeTooLarge  = "too_large"
	codeSyntax    = "syntax"
	codeTwice     = "duplicate"
	codeType      = "wrong_type"
	codeUnknown   = "unknown_field"
	codeIgnored   = "ignored_field"
	codeSpelling  = "field_spelling"
	codeCharacter = "bad_character"
	// Fields.
	codeRequired   = "required"
	codeConflict   = "conflicting_fields"
	codeID         = "bad_id"
	codeRange      = "out_of_range"
	codeDuration   = "bad_duration"
	codeExpression = "bad_expression"
	codeBoolean    = "not_boolean"
	codeLiteral    = "unclosed_expression"
	codeValue      = "bad_value"
	// Steps.
	codeDuplicate    = "duplicate_step"
	codeStepType     = "unknown_type"
	codeReference    = "unknown_step"
	codeBoundary     = "bad_boundary"
	codeCompensation = "bad_compensation"
	codeShadow       = "never_taken"
	// The graph.
	codeUnreachable = "unreachable_step"
	codeNoEnd       = "no_end"
	codeNoWayOut    = "no_way_out"
	codeLoop        = "endless_loop"
	codeMayLoop     = "loop_without_wait"
	// Gateways.
	codeJoinType     = "not_a_join"
	codeJoinShared   = "shared_join"
	codeJoinAlone    = "join_without_gateway"
	codeJoinOutside  = "join_from_outside"
	codeJoinNever    = "join_never_completes"
	codeJoinMaybe    = "join_may_not_complete"
	codeReentered    = "gateway_in_itself"
	codeComplex      = "too_complex"
	codeSameBranch   = "same_branch"
	codeSelfChain    = "endless_chain"
	codeChainPartial = "incomplete_chain"
	codeAbsent       = "unknown_definition"
)
