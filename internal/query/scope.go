package query

import "fmt"

// scopeColumns says how rows are known to be somebody's: each text is the beginning
// of a condition that ends with the argument and end.
type scopeColumns struct {
	known             bool
	tenant, user, end string
}

// scoped returns the conditions of a scope.
func (s *Schema) scoped(st *statement, scope Scope) ([]string, error) {
	if scope == (Scope{}) {
		return nil, nil
	}
	if !s.scope.known {
		return nil, fmt.Errorf("%s: %w", s.Name, ErrScope)
	}
	var list []string
	if scope.Tenant != "" {
		list = append(list, s.scope.tenant+st.arg(scope.Tenant)+s.scope.end)
	}
	if scope.User != "" {
		list = append(list, s.scope.user+st.arg(scope.User)+s.scope.end)
	}
	return list, nil
}
