package configs

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

// table is a section whose rows are not known in advance: the first source that
// names a row adds it, with the defaults of its kind.
type table struct {
	path string
	// accepts says whether a row may be called that. What it refuses is a key that
	// is not a setting.
	accepts func(row string) bool
	has     func(c *Config, row string) bool
	add     func(c *Config, row string)
	// row is the type of the values, for the names of their settings.
	row reflect.Type
	// shown stands for any row in the reference.
	shown string
}

// tables are the sections with rows of the user's.
func tables() []table {
	return []table{
		{
			path: "topics", row: reflect.TypeFor[TopicTable](), shown: string(topics.ExecutionTasks) + "_<name>",
			accepts: func(row string) bool { return topics.IsTaskTopic(topics.Topic(row)) },
			has:     func(c *Config, row string) bool { _, ok := c.Topics[topics.Topic(row)]; return ok },
			add: func(c *Config, row string) {
				spec := topics.TaskTopic(topics.Topic(row))
				c.Topics[spec.Topic] = TopicTable{Name: row, Partitions: spec.Partitions, Retention: spec.Retention}
			},
		},
		{
			path: "coordinator.classes", row: reflect.TypeFor[Class](), shown: "<name>",
			accepts: resourceClass.MatchString,
			has:     func(c *Config, row string) bool { _, ok := c.Coordinator.Classes[row]; return ok },
			add:     func(c *Config, row string) { c.Coordinator.Classes[row] = Class{} },
		},
		{
			path: "kubernetes.classes", row: reflect.TypeFor[KubernetesClass](), shown: "<name>",
			accepts: resourceClass.MatchString,
			has:     func(c *Config, row string) bool { _, ok := c.Kubernetes.Classes[row]; return ok },
			add:     func(c *Config, row string) { c.Kubernetes.Classes[row] = defaultKubernetesClass() },
		},
		{
			path: "coordinator.limits", row: reflect.TypeFor[Limit](), shown: "<name>",
			accepts: func(row string) bool { return row != "" && !strings.Contains(row, ".") }, // validated with the rest
			has:     func(c *Config, row string) bool { _, ok := c.Coordinator.Limits[row]; return ok },
			add: func(c *Config, row string) {
				c.Coordinator.Limits[row] = Limit{Per: limits.PerUser, Action: string(limits.Queue)}
			},
		},
	}
}

// declare adds the rows that the sources name to the tables of c. It reports
// nothing: what it does not understand is a fault when the sources are read.
func (s Sources) declare(c *Config, env environ) {
	document := s.outline(env)
	for _, t := range tables() {
		var rows []string
		rows = append(rows, slices.Collect(maps.Keys(section(document, t.path)))...)
		rows = append(rows, t.inEnvironment(env)...)
		for _, o := range s.Overrides {
			if rest, ok := strings.CutPrefix(o.Path, t.path+"."); ok {
				row, _, _ := strings.Cut(rest, ".")
				rows = append(rows, row)
			}
		}
		for _, row := range rows {
			if t.accepts(row) && !t.has(c, row) {
				t.add(c, row)
			}
		}
	}
}

// outline is the configuration file as nested maps; nil when it cannot be read.
func (s Sources) outline(env environ) map[string]any {
	content, err := readBounded(s.fileName(env), maxFileBytes)
	if err != nil {
		return nil
	}
	var document map[string]any
	_ = yaml.Unmarshal(content, &document) // reported when it is read for good
	return document
}

// section returns the mapping at a path of nested maps, or nil.
func section(document map[string]any, path string) map[string]any {
	for key := range strings.SplitSeq(path, ".") {
		document, _ = document[key].(map[string]any)
	}
	return document
}

// inEnvironment returns the rows that variables name: what stands between the path
// of the table and the key of a setting. Such rows are in lower case.
func (t table) inEnvironment(env environ) []string {
	prefix := variable(t.path) + "_"
	var rows []string
	for name, value := range env {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || value == "" {
			continue
		}
		for i := range t.row.NumField() {
			key := strings.ToUpper(t.row.Field(i).Tag.Get("key"))
			if row, ok := strings.CutSuffix(rest, "_"+key); ok {
				rows = append(rows, strings.ToLower(row))
			}
		}
	}
	return rows
}

// rowNodes makes a section per row of a map whose values are structs. Values of a
// map cannot be changed in place, so each section works on a copy that it stores
// after a change.
func rowNodes(rows reflect.Value, prefix string) []*node {
	keys := make([]string, 0, rows.Len())
	for _, key := range rows.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	nodes := make([]*node, len(keys))
	for i, key := range keys {
		nodes[i] = rowNode(rows, key, prefix)
		nodes[i].doc = "The settings of one of them."
	}
	return nodes
}

func rowNode(rows reflect.Value, name, prefix string) *node {
	key := reflect.ValueOf(name).Convert(rows.Type().Key())
	row := reflect.New(rows.Type().Elem()).Elem()
	if current := rows.MapIndex(key); current.IsValid() {
		row.Set(current)
	}
	store := func() { rows.SetMapIndex(key, row) }
	return &node{key: name, children: structNodes(row, prefix+name+".", store)}
}

// isTable says whether a map holds rows rather than values.
func isTable(v reflect.Value) bool {
	return v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct && !isText(v.Type().Elem())
}
