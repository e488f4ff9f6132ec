package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// execer is what statements are run through.
type execer interface {
	querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// execAll runs statements one after the other.
func execAll(ctx context.Context, db execer, statements ...string) error {
	for _, sql := range statements {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// makeShadow makes an empty table like another, with its key and without its other
// indexes. What is left of an earlier one goes.
func makeShadow(ctx context.Context, tx execer, table string) error {
	if err := checkFit(ctx, tx, table); err != nil {
		return err
	}
	live, err := readSchema(ctx, tx, table)
	if err != nil {
		return err
	}
	shadow := shadowOf(table)
	statements := []string{
		"DROP TABLE IF EXISTS " + quote(shadow),
		"CREATE TABLE " + quote(shadow) + " (LIKE " + quote(table) + " INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS)",
	}
	for _, i := range live.indexes {
		if i.primary {
			statements = append(statements, i.create(shadow, shadowOf(i.name)))
		}
	}
	if err := execAll(ctx, tx, statements...); err != nil {
		return fmt.Errorf("make %s: %w", shadow, err)
	}
	more, err := texts(ctx, tx, optionsSQL, quote(table), quote(shadow))
	if err != nil {
		return fmt.Errorf("make %s: %w", shadow, err)
	}
	// Autovacuum would work on rows that are changed again at once.
	more = append(more, "ALTER TABLE "+quote(shadow)+" SET (autovacuum_enabled = off)")
	return execAll(ctx, tx, more...)
}

// optionsSQL returns the statements that give a table ($2) what LIKE leaves out:
// options, owner, comment, rights.
const optionsSQL = `
SELECT format('ALTER TABLE %s SET (%s)', $2::text, array_to_string(reloptions, ', ')) FROM pg_class WHERE oid = $1::text::regclass AND reloptions IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %s SET (toast.%s)', $2::text, array_to_string(t.reloptions, ', toast.'))
FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = $1::text::regclass AND t.reloptions IS NOT NULL
UNION ALL
SELECT format('COMMENT ON TABLE %s IS %L', $2::text, obj_description($1::text::regclass, 'pg_class')) WHERE obj_description($1::text::regclass, 'pg_class') IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %s OWNER TO %I', $2::text, pg_get_userbyid(relowner)) FROM pg_class WHERE oid = $1::text::regclass AND pg_get_userbyid(relowner) <> current_user
UNION ALL
SELECT format('GRANT %s ON %s TO %s%s', acl.privilege_type, $2::text, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,
    CASE WHEN acl.is_grantable AND acl.grantee <> c.relowner THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_class c, aclexplode(c.relacl) AS acl WHERE c.oid = $1::text::regclass
UNION ALL
SELECT format('GRANT %s (%I) ON %s TO %s%s', acl.privilege_type, a.attname, $2::text, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,
    CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_attribute a, aclexplode(a.attacl) AS acl WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped`

// missingIndexes returns what the shadow of a table still needs to be like it: the
// statements that make indexes and statistics, and those that drop what the table no
// longer has.
func missingIndexes(ctx context.Context, db querier, table string) ([]string, error) {
	live, err := readSchema(ctx, db, table)
	if err != nil {
		return nil, err
	}
	has, err := readSchema(ctx, db, shadowOf(table))
	if err != nil {
		return nil, err
	}
	want := live.renamed(shadowOf(table), shadowOf)
	var statements []string
	for _, i := range has.indexes {
		if !slices.Contains(want.indexes, i) {
			if i.constraint {
				statements = append(statements, "ALTER TABLE "+quote(has.table)+" DROP CONSTRAINT "+quote(i.name))
			} else {
				statements = append(statements, "DROP INDEX "+quote(i.name))
			}
		}
	}
	for _, i := range want.indexes {
		if !slices.Contains(has.indexes, i) {
			statements = append(statements, i.create(want.table, i.name))
		}
	}
	for _, s := range has.statistics {
		if !slices.Contains(want.statistics, s) {
			statements = append(statements, "DROP STATISTICS "+quote(s.name))
		}
	}
	for _, s := range want.statistics {
		if !slices.Contains(has.statistics, s) {
			statements = append(statements, "CREATE STATISTICS "+quote(s.name)+" "+s.def+" FROM "+quote(want.table))
		}
	}
	return statements, nil
}

// errChanged: the table was changed by a migration since its shadow was made.
var errChanged = errors.New("the table was changed meanwhile")

// replace puts the shadow into the place of its table, which is dropped, or kept under
// another name, in the caller's transaction. It compares what results with
// what there was, so that nobody who comes after can tell a difference but in the
// rows. An error that wraps errChanged says that the shadow is out of date.
func replace(ctx context.Context, tx execer, table string, keepOld bool) error {
	if err := checkFit(ctx, tx, table); err != nil {
		return err
	}
	live, err := readSchema(ctx, tx, table)
	if err != nil {
		return err
	}
	shadow, err := readSchema(ctx, tx, shadowOf(table))
	if err != nil {
		return err
	}
	var statements []string
	if keepOld {
		old := replacedOf(table)
		statements = append(statements, renames(live, live.renamed(old, replacedOf))...)
	} else {
		statements = append(statements, "DROP TABLE "+quote(table))
	}
	statements = append(statements, "ALTER TABLE "+quote(shadow.table)+" RESET (autovacuum_enabled)")
	wanted := live.renamed(shadow.table, shadowOf)
	if !sameThings(wanted.indexes, shadow.indexes) || !sameThings(wanted.statistics, shadow.statistics) || len(live.notNull) != len(shadow.notNull) {
		return fmt.Errorf("replace %s: %w", table, errChanged)
	}
	wanted.notNull = shadow.notNull
	statements = append(statements, renames(wanted, live)...)
	if err := execAll(ctx, tx, statements...); err != nil {
		return fmt.Errorf("replace %s: %w", table, err)
	}
	now, err := readSchema(ctx, tx, table)
	if err != nil {
		return err
	}
	if now.String() != live.String() {
		return fmt.Errorf("replace %s: %w: %s", table, errChanged, firstDifference(live.String(), now.String()))
	}
	return nil
}

// sameThings reports whether two lists hold the same, in whatever order.
func sameThings[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool { return !slices.Contains(b, x) })
}

// outdated reports whether the columns, options or rights of a table are others than
// those of its shadow.
func outdated(ctx context.Context, db querier, table string) (bool, error) {
	live, err := readSchema(ctx, db, table)
	if err != nil {
		return false, err
	}
	shadow, err := readSchema(ctx, db, shadowOf(table))
	return err == nil && !sameThings(live.lines, shadow.lines), err
}

// renames returns the statements that give a table and what belongs to it other names.
func renames(from, to schema) []string {
	statements := []string{"ALTER TABLE " + quote(from.table) + " RENAME TO " + quote(to.table)}
	for n, i := range from.indexes {
		switch name := to.indexes[n].name; {
		case name == i.name:
		case i.constraint:
			statements = append(statements, renameConstraint(to.table, i.name, name))
		default:
			statements = append(statements, "ALTER INDEX "+quote(i.name)+" RENAME TO "+quote(name))
		}
	}
	for n, s := range from.statistics {
		if name := to.statistics[n].name; name != s.name {
			statements = append(statements, "ALTER STATISTICS "+quote(s.name)+" RENAME TO "+quote(name))
		}
	}
	for n, c := range from.notNull {
		if name := to.notNull[n].name; name != c.name {
			statements = append(statements, renameConstraint(to.table, c.name, name))
		}
	}
	return statements
}

func renameConstraint(table, from, to string) string {
	return "ALTER TABLE " + quote(table) + " RENAME CONSTRAINT " + quote(from) + " TO " + quote(to)
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(a, b string) string {
	before, after := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, line := range after {
		if !slices.Contains(before, line) {
			return "there is now " + line
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			return "there is no longer " + line
		}
	}
	return "no line"
}

// dropShadows drops what a rebuild has made.
func dropShadows(ctx context.Context, tx execer, tables []Table) error {
	for _, t := range slices.Backward(tables) {
		if err := execAll(ctx, tx, "DROP TABLE IF EXISTS "+quote(shadowOf(t.Name))); err != nil {
			return fmt.Errorf("drop what the rebuild has made: %w", err)
		}
	}
	return nil
}
