package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

const (
	pageDefault, pageMax           = 20, 200
	auditPageDefault, auditPageMax = 100, 1000
	// offsetMax is how far pages that are counted from the start may go: each is read up to
	// where it begins.
	offsetMax = 10_000
)

// place is where a list goes on: behind the item with these values.
type place struct {
	At  time.Time `json:"t"`
	ID  uuid.UUID `json:"i"`
	Num int64     `json:"n,omitempty"`
}

func (p place) token() string {
	text, _ := json.Marshal(p) // of these types never fails
	return base64.RawURLEncoding.EncodeToString(text)
}

func readPlace(token string) (p place, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, workflow.Refuse(ErrInvalid, "the page token is none that a page came with")
	}
	return p, nil
}

// conditions gathers what rows have to meet.
type conditions struct {
	list []string
	args []any
}

// add adds a condition whose question marks stand for args.
func (c *conditions) add(sql string, args ...any) {
	for _, arg := range args {
		c.args = append(c.args, arg)
		sql = strings.Replace(sql, "?", fmt.Sprintf("$%d", len(c.args)), 1)
	}
	c.list = append(c.list, sql)
}

func (c *conditions) where() string {
	if len(c.list) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.list, " AND ")
}

// pageSize checks the size of a page.
func pageSize(asked, size, limit int) (int, error) {
	switch {
	case asked == 0:
		return size, nil
	case asked < 0 || asked > limit:
		return 0, workflow.Refuse(ErrInvalid, "the page size is %d, want 1 to %d", asked, limit)
	}
	return asked, nil
}

// Get returns an instance as it is.
func (e *Engine) Get(ctx context.Context, id uuid.UUID) (Instance, error) {
	x, err := e.row(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	return x.instance(), nil
}

func (e *Engine) row(ctx context.Context, id uuid.UUID) (*row, error) {
	rows, err := e.config.Pool.Query(ctx, `SELECT `+instanceColumns+` FROM wf_instances i WHERE i.id = $1`, id)
	if err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("instance %s: %w", id, ErrNotFound)
	}
	return found[0], nil
}

// List returns a page of instances, the youngest first. Page by page with tokens, what
// was begun meanwhile does not move the others; pages by number go so far only.
func (e *Engine) List(ctx context.Context, f Filter) (Page, error) {
	size, err := pageSize(f.PageSize, pageDefault, pageMax)
	if err != nil {
		return Page{}, err
	}
	if f.Page < 0 || f.Page*size > offsetMax {
		return Page{}, workflow.Refuse(ErrInvalid, "page %d of %d begins behind the first %d instances: go on by page token", f.Page, size, offsetMax)
	}
	c := filterConditions(f)
	var page Page
	if f.WithTotal {
		err := e.config.Pool.QueryRow(ctx, `SELECT count(*) FROM wf_instances i`+c.where(), c.args...).Scan(&page.Total)
		if err != nil {
			return Page{}, fmt.Errorf("count instances: %w", err)
		}
	}
	offset := f.Page * size
	if f.PageToken != "" {
		p, err := readPlace(f.PageToken)
		if err != nil {
			return Page{}, err
		}
		offset = 0
		c.add("(i.started_at, i.id) < (?, ?)", p.At, p.ID)
	}
	sql := fmt.Sprintf(`SELECT %s FROM wf_instances i%s ORDER BY i.started_at DESC, i.id DESC LIMIT %d OFFSET %d`, instanceColumns, c.where(), size+1, offset)
	rows, err := e.config.Pool.Query(ctx, sql, c.args...)
	if err != nil {
		return Page{}, fmt.Errorf("list instances: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return Page{}, fmt.Errorf("list instances: %w", err)
	}
	if len(found) > size {
		found = found[:size]
		last := found[size-1]
		page.NextPageToken = place{At: last.state.StartedAt, ID: last.id}.token()
	}
	page.Items = make([]Instance, len(found))
	for i, x := range found {
		page.Items[i] = x.instance()
	}
	return page, nil
}

func filterConditions(f Filter) *conditions {
	c := &conditions{}
	if f.DefinitionID != "" {
		c.add("i.definition_id = ?", f.DefinitionID)
	}
	if f.BusinessKey != "" {
		c.add("i.business_key = ?", f.BusinessKey)
	}
	if f.Kind != "" {
		c.add("i.kind = ?", f.Kind)
	}
	if f.ParentID != uuid.Nil {
		c.add("i.parent_instance_id = ?", f.ParentID)
	}
	if len(f.Statuses) > 0 {
		words, troubled := make([]string, len(f.Statuses)), true
		for i, s := range f.Statuses {
			words[i] = string(s)
			troubled = troubled && trouble(s) != nil
		}
		// Those that may need somebody have an index.
		if troubled {
			c.add("i.trouble = ANY(?::text[])", words)
		} else {
			c.add("i.status = ANY(?::text[])", words)
		}
	}
	return c
}

// UserTasks returns a page of user tasks, the oldest first.
func (e *Engine) UserTasks(ctx context.Context, f UserTaskFilter) (UserTaskPage, error) {
	size, err := pageSize(f.PageSize, pageDefault, pageMax)
	if err != nil {
		return UserTaskPage{}, err
	}
	c, err := taskConditions(f)
	if err != nil {
		return UserTaskPage{}, err
	}
	sql := fmt.Sprintf(`%s%s ORDER BY t.created_at, t.instance_id, t.activity LIMIT %d`, selectTasks, c.where(), size+1)
	rows, err := e.config.Pool.Query(ctx, sql, c.args...)
	if err != nil {
		return UserTaskPage{}, fmt.Errorf("list user tasks: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanTask)
	if err != nil {
		return UserTaskPage{}, fmt.Errorf("list user tasks: %w", err)
	}
	page := UserTaskPage{Items: found}
	if len(found) > size {
		page.Items = found[:size]
		last := found[size-1]
		page.NextPageToken = place{At: last.CreatedAt, ID: last.InstanceID, Num: int64(last.Activity)}.token()
	}
	return page, nil
}

func taskConditions(f UserTaskFilter) (*conditions, error) {
	c := &conditions{}
	switch {
	case len(f.Statuses) == 0:
		c.add("t.status IN ('OPEN', 'CLAIMED')")
	default:
		for _, s := range f.Statuses {
			if s != taskOpen && s != taskClaimed && s != taskCompleted && s != taskCancelled {
				return nil, workflow.Refuse(ErrInvalid, "%q is no status of user tasks; there are OPEN, CLAIMED, COMPLETED and CANCELLED", s)
			}
		}
		c.add("t.status = ANY(?::text[])", f.Statuses)
	}
	if f.InstanceID != uuid.Nil {
		c.add("t.instance_id = ?", f.InstanceID)
	}
	if f.Assignee != "" {
		c.add("t.assignee = ?", f.Assignee)
	}
	if f.Group != "" {
		c.add("? = ANY(t.groups)", f.Group)
	}
	if f.UnassignedOnly {
		c.add("t.assignee IS NULL")
	}
	if f.Overdue {
		c.add("t.due_at < clock_timestamp()")
	}
	if f.DefinitionID != "" {
		c.add("i.definition_id = ?", f.DefinitionID)
	}
	if f.PageToken != "" {
		p, err := readPlace(f.PageToken)
		if err != nil {
			return nil, err
		}
		c.add("(t.created_at, t.instance_id, t.activity) > (?, ?, ?)", p.At, p.ID, p.Num)
	}
	return c, nil
}

// Audit returns a page of what happened to an instance, the oldest first.
func (e *Engine) Audit(ctx context.Context, f AuditFilter) (AuditPage, error) {
	size, err := pageSize(f.PageSize, auditPageDefault, auditPageMax)
	if err != nil {
		return AuditPage{}, err
	}
	if _, err := e.row(ctx, f.InstanceID); err != nil {
		return AuditPage{}, err
	}
	var after place
	if f.PageToken != "" {
		if after, err = readPlace(f.PageToken); err != nil {
			return AuditPage{}, err
		}
	}
	kinds := make([]string, len(f.Kinds))
	for i, k := range f.Kinds {
		kinds[i] = string(k)
	}
	// A place is the number of an entry within the journal of its instance: version, then
	// position, of which there are less than a million.
	rows, err := e.config.Pool.Query(ctx, `
		SELECT j.at, coalesce(nullif(x.entry->>'actor', ''), nullif(j.actor, ''), 'engine'), x.entry->>'kind', j.version, x.entry::text, j.version * 1000000 + x.place
		FROM wf_journal j, LATERAL json_array_elements(j.entries) WITH ORDINALITY AS x(entry, place)
		WHERE j.instance_id = $1 AND j.version >= $2 / 1000000 AND j.version * 1000000 + x.place > $2
			AND (cardinality($3::text[]) = 0 OR x.entry->>'kind' = ANY($3::text[]))
		ORDER BY j.version, x.place LIMIT $4`, f.InstanceID, after.Num, kinds, size+1)
	if err != nil {
		return AuditPage{}, fmt.Errorf("read journal: %w", err)
	}
	var places []int64
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (AuditEntry, error) {
		a := AuditEntry{InstanceID: f.InstanceID}
		var detail string
		var n int64
		err := r.Scan(&a.At, &a.Actor, &a.Kind, &a.Version, &detail, &n)
		a.Detail, places = json.RawMessage(detail), append(places, n)
		return a, err
	})
	if err != nil {
		return AuditPage{}, fmt.Errorf("read journal: %w", err)
	}
	page := AuditPage{Items: found}
	if len(found) > size {
		page.Items = found[:size]
		page.NextPageToken = place{Num: places[size-1]}.token()
	}
	return page, nil
}

// journal reads all entries of an instance, in order.
func (e *Engine) journal(ctx context.Context, id uuid.UUID) ([]journalRow, error) {
	rows, err := e.config.Pool.Query(ctx, `SELECT version, at, input, actor, entries::text FROM wf_journal WHERE instance_id = $1 ORDER BY version`, id)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (journalRow, error) {
		j := journalRow{instance: id}
		var entries string
		if err := r.Scan(&j.version, &j.at, &j.input, &j.actor, &entries); err != nil {
			return j, err
		}
		return j, json.Unmarshal([]byte(entries), &j.entries)
	})
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return found, nil
}
