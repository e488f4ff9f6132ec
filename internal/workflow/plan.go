package workflow

// Plan is a definition that is free of faults, with its expressions compiled: what the
// machine runs on. It holds no state and is safe for concurrent use.
type Plan struct {
	definition *Definition
}

// Definition returns what the plan was made from. It must not be changed.
func (p *Plan) Definition() *Definition { return p.definition }
