package workflow

import (
	"cmp"
	"slices"
)

// JobTypes returns the types of the jobs that instances of a definition may have, sorted.
// That of a USER_TASK is none: it is a label.
func (d *Definition) JobTypes() []string {
	var types []string
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.Type == ServiceTask || s.Type == ForEach && s.WorkflowID == "" {
			types = append(types, cmp.Or(s.JobType, s.ID))
		}
		if s.Compensation != nil && s.Compensation.JobType != "" {
			types = append(types, s.Compensation.JobType)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}
