package definitions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

// recent is how many versions JobTypes looks at.
const recent = 1000

// JobTypes returns the types of jobs, sorted, of the definitions whose latest version was
// uploaded since a time (zero: ever), and when the youngest of them was. Of very many it
// looks at the youngest thousand: it is for what helps, and not for what has to be.
func (s *Store) JobTypes(ctx context.Context, since time.Time) (types []string, youngest time.Time, err error) {
	rows, err := s.pool.Query(ctx, `
		SELECT document, uploaded_at FROM wf_definitions d
		WHERE uploaded_at >= $1 AND NOT EXISTS (SELECT FROM wf_definitions n WHERE n.id = d.id AND n.version > d.version)
		ORDER BY uploaded_at DESC LIMIT $2`, since, recent)
	if err != nil {
		return nil, since, fmt.Errorf("list job types: %w", err)
	}
	youngest = since
	var text []byte
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&text, &at}, func() error {
		if at.After(youngest) {
			youngest = at
		}
		if d, err := workflow.Parse(text); err == nil { // one that is not read does not run either
			types = append(types, d.JobTypes()...)
		}
		return nil
	})
	if err != nil {
		return nil, since, fmt.Errorf("list job types: %w", err)
	}
	slices.Sort(types)
	return slices.Compact(types), youngest, nil
}
