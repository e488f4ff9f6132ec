package workflow

import (
	"fmt"
	"reflect"
)

// Reference is another definition that one starts.
type Reference struct {
	ID string
	// Version is 0 for the latest.
	Version int
	// Line, Column and Path say where; see Fault.
	Line, Column  int
	Path, Pointer string
}

// Absent returns the warning that the definition is not there.
func (r Reference) Absent() Fault {
	which := "no definition"
	if r.Version > 0 {
		which = fmt.Sprintf("no version %d of definition", r.Version)
	}
	return Fault{
		Line: r.Line, Column: r.Column, Path: r.Path, Pointer: r.Pointer, Code: codeAbsent, Warning: true,
		Message: fmt.Sprintf("there is %s %s yet", which, abridged(r.ID)), Hint: "upload it before an instance comes to it",
	}
}

// Locate returns where in the text of a definition a field is, or, when it is not there,
// what is around it.
func Locate(text []byte, elements ...any) (line, column int) {
	document, fault := readDocument(text)
	if fault != nil {
		return document.place(fault.offset)
	}
	return document.place(document.find(at(elements...)))
}

// References returns the definitions that the definition of a text starts: the next one of
// its chain, and those of its SUBWORKFLOW and FOREACH steps. A text that is none has none.
func References(text []byte) []Reference {
	document, fault := readDocument(text)
	if fault != nil {
		return nil
	}
	l := &linter{document: document}
	d := new(Definition)
	l.decode(document.root, reflect.ValueOf(d).Elem(), place{})
	var found []Reference
	add := func(id string, version int, where place) {
		r := Reference{ID: id, Version: version, Path: where.String(), Pointer: where.pointer()}
		r.Line, r.Column = document.place(document.find(where))
		found = append(found, r)
	}
	if d.AutoStartNextWorkflow && d.NextWorkflowID != "" {
		add(d.NextWorkflowID, 0, at("nextWorkflowId"))
	}
	for i, s := range d.Steps {
		if s.WorkflowID != "" && (s.Type == Subworkflow || s.Type == ForEach) {
			add(s.WorkflowID, s.WorkflowVersion, at("steps", i, "workflowId"))
		}
	}
	return found
}
