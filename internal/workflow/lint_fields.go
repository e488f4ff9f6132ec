package workflow

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The types of boundary events.
const (
	TimerEvent = "TIMER"
	ErrorEvent = "ERROR"
)

// What a failed instance does; see Definition.OnFailure.
const (
	CompensateOnFailure = "compensate"
	StopOnFailure       = "fail"
)

// The bounds of retries.
const (
	maxRetries    = 1000
	maxMultiplier = 100
)

// idHint says what ids look like.
const idHint = "ids are of letters, digits, '_', ':' and '-', as in LOANS::check-credit"

// checkDefinition reports the faults of the fields of the definition itself.
func (l *linter) checkDefinition() {
	d := l.Definition
	l.definitionID(at("id"), d.ID, "the definition")
	l.require(at("name"), strings.TrimSpace(d.Name) == "", "", "the definition has no name")
	l.require(at("steps"), len(d.Steps) == 0, "", "the definition has no steps")
	l.duration(at("timeout"), d.Timeout)
	if d.OnFailure != "" && d.OnFailure != CompensateOnFailure && d.OnFailure != StopOnFailure {
		l.fault(codeValue, at("onFailure"), "", "onFailure is %q or %q, not %q", CompensateOnFailure, StopOnFailure, d.OnFailure)
	}
	switch next := at("nextWorkflowId"); {
	case d.AutoStartNextWorkflow && d.NextWorkflowID == "":
		l.require(at("autoStartNextWorkflow"), true, "", "autoStartNextWorkflow needs nextWorkflowId")
	case d.AutoStartNextWorkflow:
		l.definitionID(next, d.NextWorkflowID, "nextWorkflowId")
		if d.NextWorkflowID == d.ID {
			l.warn(codeSelfChain, next, "", "the workflow starts itself each time it ends, without end")
		}
	case d.NextWorkflowID != "":
		l.warn(codeChainPartial, next, "set autoStartNextWorkflow to true", "nextWorkflowId means nothing without autoStartNextWorkflow")
	}
}

// definitionID reports an id of a definition that cannot be one.
func (l *linter) definitionID(where place, id, whose string) {
	switch {
	case id == "":
		l.require(where, true, idHint, "%s has no id", whose)
	case len(id) > MaxID:
		l.fault(codeID, where, "", "the id of %s has %d characters, at most %d are allowed", whose, utf8.RuneCountInString(id), MaxID)
	case !IsDefinitionID(id):
		l.fault(codeID, where, idHint, "%s is not an id of a definition", abridged(id))
	}
}

// IsDefinitionID says whether a text can be the id of a definition: at most 256 of
// letters, digits, '_', ':' and '-'.
func IsDefinitionID(id string) bool {
	for _, c := range id {
		if c > unicode.MaxASCII || c != '_' && c != ':' && c != '-' && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return id != "" && len(id) <= MaxID
}

// duration reports a duration that does not parse, or is nothing.
func (l *linter) duration(where place, text string) {
	if text == "" {
		return
	}
	d, err := duration(text)
	switch {
	case err != nil:
		l.fault(codeDuration, where, "durations are ISO 8601: PT30S, PT1H30M, P7D, P2W", "%q is no duration: %s", text, err)
	case d == 0:
		l.fault(codeDuration, where, "", "%s must be longer than nothing", where.subject())
	}
}

// between reports a number out of its range.
func (l *linter) between(where place, value, least, most float64) {
	if value < least || value > most {
		l.fault(codeRange, where, "", "%s must be from %s to %s, not %s", where.subject(), plainly(least), plainly(most), plainly(value))
	}
}

func plainly(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

// field checks a text that must be an expression, or, when it may be a literal, one that is
// meant to be.
func (l *linter) field(where place, text string, literal bool) {
	switch {
	case text == "":
	case isExpression(text):
		l.expression(where, text)
	case !literal:
		l.fault(codeExpression, where, fmt.Sprintf("write %q", "${"+strings.Trim(text, "${}")+"}"), "%s must be an expression, not the text %s", where.subject(), abridged(text))
	case strings.HasPrefix(text, "${") || strings.Contains(text, "${") && strings.HasSuffix(text, "}"):
		l.warn(codeLiteral, where, `a text is an expression from "${" at its beginning to "}" at its end, and nothing else is`, "%s is not an expression: it is taken as it is", abridged(text))
	}
}

// assignments checks the values of transformations and inputs.
func (l *linter) assignments(where place, list Assignments) {
	for _, a := range list {
		if strings.TrimSpace(a.Variable) == "" {
			l.fault(codeRequired, where.key(a.Variable), "", "a variable of %s has no name", where.subject())
		}
		if text, ok := textOf(a.Value); ok {
			l.field(where.with(a.Variable), text, true)
		}
	}
}

// retry checks a retry policy.
func (l *linter) retry(where place, r *Retry) {
	if r == nil {
		return
	}
	l.between(where.with("count"), float64(r.Count), 0, maxRetries)
	if r.Multiplier != 0 {
		l.between(where.with("multiplier"), r.Multiplier, 1, maxMultiplier)
	}
	l.between(where.with("jitter"), r.Jitter, 0, 1)
	if d, err := duration(r.Initial); err != nil || d > 0 { // at once is fine
		l.duration(where.with("initial"), r.Initial)
	}
	l.duration(where.with("max"), r.Max)
	l.duration(where.with("maxAge"), r.MaxAge)
	if initial, most := lengthOf(r.Initial), lengthOf(r.Max); initial > 0 && most > 0 && initial > most {
		l.warn(codeConflict, where.with("initial"), "", "the first wait, %s, is longer than the longest, %s: every wait is %s", r.Initial, r.Max, r.Max)
	}
	l.names(where.with("on"), r.On)
}

// lengthOf is a duration, or 0 when it does not parse.
func lengthOf(text string) time.Duration {
	d, _ := duration(text)
	return d
}

// names checks a list of names.
func (l *linter) names(where place, list []string) {
	seen := make(map[string]bool, len(list))
	for i, name := range list {
		l.require(where.with(i), strings.TrimSpace(name) == "", "", "%q has an empty entry", where.subject())
		if seen[name] {
			l.warn(codeTwice, where.with(i), "", "%q is in %s twice", name, where.subject())
		}
		seen[name] = true
	}
}
