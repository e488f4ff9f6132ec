package rebuild

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrUnfit: the table has something that a shadow would not have, so that replacing
// it would lose that.
var ErrUnfit = errors.New("the table cannot be rebuilt")

// querier is what the catalogue is read through.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schema is what makes up a table beside its rows.
type schema struct {
	table string
	// lines describe columns, options, rights and constraints that belong to no index,
	// in a fixed order and without the names of the table and of what has one of its own.
	lines []string
	// indexes are all indexes, those that stand behind constraints among them.
	indexes []index
	// statistics are extended statistics.
	statistics []named
	// notNull are the names of not-null constraints, which have some since PostgreSQL 18.
	notNull []named
}

// named is something with a name of its own.
type named struct {
	name string
	// def is what it is, without its name and that of its table.
	def string
}

// index is an index of a table.
type index struct {
	named
	// constraint is true when it stands behind one, whose definition def is then.
	constraint bool
	primary    bool
}

// String is the schema for comparisons: of two tables it is the same when
// nobody can tell one from the other.
func (s schema) String() string {
	lines := slices.Clone(s.lines)
	for _, i := range s.indexes {
		lines = append(lines, "index "+i.name+" "+i.def)
	}
	for _, n := range slices.Concat(s.statistics, s.notNull) {
		lines = append(lines, "named "+n.name+" "+n.def)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// renamed is the schema as it is when all that has a name is called otherwise.
func (s schema) renamed(table string, name func(string) string) schema {
	out := schema{table: table, lines: s.lines}
	for _, i := range s.indexes {
		i.name = name(i.name)
		out.indexes = append(out.indexes, i)
	}
	for _, n := range s.statistics {
		out.statistics = append(out.statistics, named{name(n.name), n.def})
	}
	out.notNull = s.notNull
	return out
}

// Columns by their place, since rows are compared as a whole, then options, then what
// anybody may do with the table, then constraints.
const schemaSQL = `
SELECT format('column %s %s %s default %s generated %s identity %s null %s storage %s compression %s statistics %s options %s comment %s rights %s',
    row_number() OVER (ORDER BY a.attnum), a.attname, format_type(a.atttypid, a.atttypmod) || coalesce(' collate ' || a.attcollation::regcollation::text, ''),
    coalesce(pg_get_expr(d.adbin, d.adrelid), '-'), a.attgenerated, a.attidentity, NOT a.attnotnull, a.attstorage, a.attcompression,
    coalesce(a.attstattarget, -1), a.attoptions, col_description(a.attrelid, a.attnum),
    (SELECT string_agg(acl::text, ',' ORDER BY acl::text) FROM unnest(a.attacl) AS acl))
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format('table owner %s options %s toast %s persistence %s tablespace %s comment %s rights %s', c.relowner::regrole,
    (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(c.reloptions) AS o WHERE o NOT LIKE 'autovacuum_enabled=%'),
    (SELECT string_agg(o, ',' ORDER BY o) FROM unnest(t.reloptions) AS o), c.relpersistence, c.reltablespace,
    obj_description(c.oid, 'pg_class'), (SELECT string_agg(acl::text, ',' ORDER BY acl::text) FROM unnest(c.relacl) AS acl))
FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = $1::regclass
UNION ALL
SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
WHERE conrelid = $1::regclass AND contype NOT IN ('p', 'u', 'x', 'n')`

const indexesSQL = `
SELECT x.relname, coalesce(pg_get_constraintdef(c.oid), CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END || pg_get_indexdef(i.indexrelid)),
    c.oid IS NOT NULL, i.indisprimary
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid
LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype IN ('p', 'u', 'x')
WHERE i.indrelid = $1::regclass
ORDER BY i.indisprimary DESC, x.relname`

// unfitSQL names what a shadow would not have. Not in it are the things that would
// keep the table from being dropped, which fails by itself.
const unfitSQL = `
SELECT 'the trigger ' || tgname FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal
UNION ALL SELECT 'the foreign key ' || conname FROM pg_constraint WHERE contype = 'f' AND $1::regclass IN (conrelid, confrelid)
UNION ALL SELECT 'the row security policy ' || polname FROM pg_policy WHERE polrelid = $1::regclass
UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite WHERE ev_class = $1::regclass
UNION ALL SELECT 'the view ' || r.ev_class::regclass FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = $1::regclass AND r.ev_class <> $1::regclass
UNION ALL SELECT 'a place in the publication ' || p.pubname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = $1::regclass
UNION ALL SELECT 'an identity column' FROM pg_attribute WHERE attrelid = $1::regclass AND attidentity <> ''
UNION ALL SELECT 'the sequence ' || d.objid::regclass FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    WHERE d.classid = 'pg_class'::regclass AND d.refobjid = $1::regclass AND d.deptype = 'a'
UNION ALL SELECT 'partitions or parents' FROM pg_inherits WHERE $1::regclass IN (inhrelid, inhparent)
UNION ALL SELECT 'a replica identity' FROM pg_class WHERE oid = $1::regclass AND relreplident <> 'd'
UNION ALL SELECT 'row security' FROM pg_class WHERE oid = $1::regclass AND relrowsecurity
UNION ALL SELECT 'an invalid index' FROM pg_index WHERE indrelid = $1::regclass AND NOT indisvalid
LIMIT 5`

// readSchema returns what makes up a table, or an error that wraps ErrUnfit.
func readSchema(ctx context.Context, db querier, table string) (schema, error) {
	s := schema{table: table}
	fail := func(err error) (schema, error) { return s, fmt.Errorf("read the schema of %s: %w", table, err) }
	var err error
	if s.lines, err = texts(ctx, db, schemaSQL, quote(table)); err != nil {
		return fail(err)
	}
	rows, err := db.Query(ctx, indexesSQL, quote(table))
	if err == nil {
		s.indexes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i index, err error) {
			err = row.Scan(&i.name, &i.def, &i.constraint, &i.primary)
			return i, err
		})
	}
	if err != nil {
		return fail(err)
	}
	for n, i := range s.indexes {
		if !i.constraint {
			s.indexes[n].def = indexBody(i.def)
		}
	}
	if s.statistics, err = names(ctx, db, `SELECT stxname, pg_get_statisticsobjdef(oid) FROM pg_statistic_ext WHERE stxrelid = $1::regclass ORDER BY 1`, table); err != nil {
		return fail(err)
	}
	for n, st := range s.statistics {
		s.statistics[n].def = statisticsBody(st.def)
	}
	if s.notNull, err = names(ctx, db, `SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'n' ORDER BY 2`, table); err != nil {
		return fail(err)
	}
	return s, nil
}

// checkFit returns an error that wraps ErrUnfit when the table cannot be replaced.
func checkFit(ctx context.Context, db querier, table string) error {
	unfit, err := texts(ctx, db, unfitSQL, quote(table))
	if err != nil {
		return fmt.Errorf("look at what depends on %s: %w", table, err)
	}
	if len(unfit) > 0 {
		return fmt.Errorf("%s has %s, which a new table would not have: %w", table, strings.Join(unfit, ", "), ErrUnfit)
	}
	return nil
}

func texts(ctx context.Context, db querier, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func names(ctx context.Context, db querier, sql, table string) ([]named, error) {
	rows, err := db.Query(ctx, sql, quote(table))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n named, err error) {
		err = row.Scan(&n.name, &n.def)
		return n, err
	})
}

// indexBody is the definition of an index without the names: "UNIQUE USING btree (a)".
func indexBody(def string) string {
	unique := ""
	if strings.HasPrefix(def, "UNIQUE ") {
		unique = "UNIQUE "
	}
	return unique + def[strings.Index(def, " USING ")+1:]
}

// create returns the statement that makes the index on a table, under a name.
func (i index) create(table, name string) string {
	if i.constraint {
		return "ALTER TABLE " + quote(table) + " ADD CONSTRAINT " + quote(name) + " " + i.def
	}
	body, unique := strings.CutPrefix(i.def, "UNIQUE ")
	if unique {
		return "CREATE UNIQUE INDEX " + quote(name) + " ON " + quote(table) + " " + body
	}
	return "CREATE INDEX " + quote(name) + " ON " + quote(table) + " " + body
}

var statisticsDef = regexp.MustCompile(`(?s)^CREATE STATISTICS \S+ ?(.*) FROM \S+$`)

// statisticsBody is the definition of extended statistics without the names.
func statisticsBody(def string) string {
	if m := statisticsDef.FindStringSubmatch(def); m != nil {
		return m[1]
	}
	return def
}
