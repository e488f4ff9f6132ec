package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// Mermaid draws the definition as a Mermaid flowchart. Tasks are boxes, decisions rhombs,
// gateways hexagons, what waits is round, ends are circles. Boundary events are dotted;
// those that interrupt their step are marked with a cross. References to steps that are not
// there are left out.
func (d *Definition) Mermaid() string {
	out := new(strings.Builder)
	if d.Name != "" {
		fmt.Fprintf(out, "---\ntitle: %q\n---\n", d.Name)
	}
	out.WriteString("flowchart TD\n")
	nodes := make(map[string]string, len(d.Steps))
	for i, s := range d.Steps {
		if _, twice := nodes[s.ID]; !twice {
			nodes[s.ID] = fmt.Sprintf("s%d", i+1)
		}
	}
	if len(d.Steps) > 0 {
		out.WriteString("    start(( )) --> s1\n")
	}
	for i := range d.Steps {
		d.Steps[i].drawNode(out, fmt.Sprintf("s%d", i+1))
	}
	for i := range d.Steps {
		d.Steps[i].drawEdges(out, i, nodes)
	}
	if d.AutoStartNextWorkflow && d.NextWorkflowID != "" {
		fmt.Fprintf(out, "    next[[\"%s\"]]\n", label("starts "+d.NextWorkflowID))
		for i, s := range d.Steps {
			if s.Type == End {
				fmt.Fprintf(out, "    s%d -.-> next\n", i+1)
			}
		}
	}
	return out.String()
}

// drawNode draws a step in the shape of its type.
func (s *Step) drawNode(out *strings.Builder, node string) {
	text := label(s.Name)
	if s.Name == "" {
		text = label(s.ID)
	}
	if detail := s.detail(); detail != "" {
		text += "<br/><small>" + label(detail) + "</small>"
	}
	left, right := `["`, `"]`
	switch s.Type {
	case Decision:
		left, right = `{"`, `"}`
	case ParallelGateway, JoinGateway:
		left, right = `{{"`, `"}}`
	case Transformation:
		left, right = `[/"`, `"/]`
	case UserTask:
		left, right = `[\"`, `"\]`
	case Wait, TimerStep:
		left, right = `(["`, `"])`
	case ForEach, Subworkflow:
		left, right = `[["`, `"]]`
	case Command:
		left, right = `>"`, `"]`
	case End:
		left, right = `((("`, `")))`
	case ServiceTask: // a box
	}
	fmt.Fprintf(out, "    %s%s%s%s\n", node, left, text, right)
}

// detail is what a step does, in short.
func (s *Step) detail() string {
	switch s.Type {
	case ServiceTask:
		if s.JobType != "" && s.JobType != s.Name {
			return "job " + s.JobType
		}
	case UserTask:
		return s.Assignee
	case Wait:
		if s.Signal != "" {
			return "signal " + s.Signal
		}
	case TimerStep:
		return s.Duration + s.Until
	case ForEach:
		return "each of " + s.Items
	case Subworkflow:
		return s.WorkflowID
	case Command:
		return strings.TrimPrefix(s.Participant+": "+s.CommandType, ": ")
	case Decision, Transformation, ParallelGateway, JoinGateway, End:
	}
	return ""
}

// drawEdges draws the ways out of a step.
func (s *Step) drawEdges(out *strings.Builder, i int, nodes map[string]string) {
	node := fmt.Sprintf("s%d", i+1)
	edge := func(arrow, text, target string) {
		to, ok := nodes[target]
		switch {
		case !ok:
		case text == "":
			fmt.Fprintf(out, "    %s %s %s\n", node, arrow, to)
		default:
			fmt.Fprintf(out, "    %s %s|\"%s\"| %s\n", node, arrow, label(text), to)
		}
	}
	switch {
	case s.Type == Decision || slices.Contains(tasks, s.Type) && len(s.ConditionalNextSteps) > 0:
		for _, branch := range s.ConditionalNextSteps {
			edge("-->", branch.Expression, branch.Step)
		}
	case s.Type == ParallelGateway:
		for _, target := range s.ParallelNextSteps {
			edge("-->", "", target)
		}
	case s.Type != End:
		edge("-->", "", s.NextStep)
	}
	for _, event := range s.BoundaryEvents {
		text := strings.TrimSpace("after " + event.Duration)
		if event.Type == ErrorEvent {
			text = strings.TrimSpace("error " + strings.Join(event.Codes, ", "))
		}
		if event.Interrupting || event.Type == ErrorEvent {
			edge("-.-x", text, event.TargetStepID)
			continue
		}
		edge("-.->", text, event.TargetStepID)
	}
	if undo := s.Compensation; undo != nil {
		fmt.Fprintf(out, "    %s -.- u%d[\"%s\"]\n", node, i+1, label("undo: "+undo.JobType+undo.CommandType))
	}
}

// label makes a text safe to stand between quotes, on one line and not too long.
func label(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-3]) + "..."
	}
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "\\", "#92;", "\n", " ", "\r", " ", "\t", " ").Replace(text)
}
