package configs

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

// Setting describes one setting: a leaf of Config.
type Setting struct {
	// Path is its place in the file, such as "kafka.brokers".
	Path string
	// Env is the environment variable that sets it.
	Env string
	// Flag is the flag of `up` and `serve` that sets it, without dashes; empty
	// when only --set reaches it.
	Flag string
	// Type is the kind of value in a word: text, secret, bool, number, duration,
	// size, cores, rate, list, map.
	Type string
	// Default is the default as it would be written in a file; empty for none.
	Default string
	// Unset says what holds when the value is empty.
	Unset string
	// Choices are the accepted values, if there is a fixed set.
	Choices []string
	// Doc is a sentence or two.
	Doc string
}

// Settings returns every setting in the order of the reference.
func Settings() []Setting {
	config := Default()
	fields := config.fields()
	settings := make([]Setting, len(fields))
	for i, f := range fields {
		settings[i] = f.Setting
	}
	return settings
}

// node is a section or a setting of a particular Config.
type node struct {
	key      string
	doc      string
	setting  *field // nil for a section
	children []*node
}

// field is a setting bound to a Config.
type field struct {
	Setting
	mustExist bool // the value names a file that must exist
	value     reflect.Value
	store     func() // writes value back where it came from, if it is a copy
}

// set writes v, of the field's own type.
func (f *field) set(v reflect.Value) {
	f.value.Set(v)
	if f.store != nil {
		f.store()
	}
}

// fields returns the settings of c. Setting one changes c.
func (c *Config) fields() []*field {
	var all []*field
	var collect func(n *node)
	collect = func(n *node) {
		if n.setting != nil {
			all = append(all, n.setting)
		}
		for _, child := range n.children {
			collect(child)
		}
	}
	collect(c.tree())
	return all
}

// tree returns the settings of c as they nest in a file.
func (c *Config) tree() *node {
	root := &node{}
	root.children = structNodes(reflect.ValueOf(c).Elem(), "", nil)
	return root
}

// structNodes makes a node per field of the struct v. store is called after a
// change, for structs that are copies of map values.
func structNodes(v reflect.Value, prefix string, store func()) []*node {
	nodes := make([]*node, 0, v.NumField())
	for i := range v.NumField() {
		tag, value := v.Type().Field(i).Tag, v.Field(i)
		n := &node{key: tag.Get("key"), doc: tag.Get("doc")}
		path := prefix + n.key
		switch value.Interface().(type) {
		case map[topics.Topic]TopicTable:
			n.children = topicNodes(value, path+".")
		default:
			if isTable(value) {
				n.children = rowNodes(value, path+".")
				break
			}
			if value.Kind() == reflect.Struct && !isText(value.Type()) {
				n.children = structNodes(value, path+".", store)
				break
			}
			n.setting = newField(tag, path, value, store)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// topicNodes makes a section per topic: the built-in ones in their order, then those
// that were declared.
func topicNodes(rows reflect.Value, prefix string) []*node {
	var nodes []*node
	for _, spec := range specsOf(rows.Interface().(map[topics.Topic]TopicTable)) {
		n := rowNode(rows, string(spec.Topic), prefix)
		n.doc = strings.ToUpper(spec.Purpose[:1]) + spec.Purpose[1:] + "; key: " + spec.Key + "."
		nodes = append(nodes, n)
	}
	return nodes
}

func newField(tag reflect.StructTag, path string, value reflect.Value, store func()) *field {
	f := &field{value: value, store: store, mustExist: tag.Get("file") == "read"}
	f.Setting = Setting{
		Path: path,
		Env:  variable(path),
		Flag: tag.Get("flag"), Type: typeName(value.Type()),
		Default: format(value), Unset: tag.Get("unset"), Doc: tag.Get("doc"),
	}
	if oneof, ok := tag.Lookup("oneof"); ok {
		f.Choices = strings.Split(oneof, ",")
	}
	return f
}

// variable is the environment variable of a path. The names of topics may have dashes,
// which a shell does not take in the name of a variable; the rows that users add to
// other tables keep theirs, since two of them may differ by no more than that.
func variable(path string) string {
	name := strings.ReplaceAll(path, ".", "_")
	if strings.HasPrefix(path, "topics.") {
		name = strings.ReplaceAll(name, "-", "_")
	}
	return EnvPrefix + strings.ToUpper(name)
}

// isText says whether values of a type are written as one text, whatever they are
// made of.
func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Cores]():
		return "cores"
	case reflect.TypeFor[limits.Rate]():
		return "rate"
	case reflect.TypeFor[secret.Secret]():
		return "secret"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

// format returns the value as it would be written in a file or a variable, a
// secret redacted.
func format(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		return strings.Join(listOf(v), ",")
	case reflect.Map:
		pairs := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			pairs = append(pairs, k.String()+"="+format(v.MapIndex(k)))
		}
		slices.Sort(pairs)
		return strings.Join(pairs, ",")
	default:
		return fmt.Sprint(v.Interface())
	}
}

// listOf returns the elements of a slice of texts.
func listOf(v reflect.Value) []string {
	list := make([]string, v.Len())
	for i := range list {
		list[i] = v.Index(i).String()
	}
	return list
}

// parse makes a value of type t from raw, which is a string, a []string or a
// map[string]any of strings: what a file, a variable or a flag can say. The
// error does not repeat secrets.
func parse(t reflect.Type, raw any) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Slice:
		return v, parseList(v, raw)
	case reflect.Map:
		return v, parseMap(v, raw)
	}
	text, ok := raw.(string)
	if !ok {
		return v, fmt.Errorf("want a single value")
	}
	return v, parseText(v, text)
}

func parseText(v reflect.Value, text string) error {
	switch target := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := parseDuration(text)
		*target = d
		return err
	case *Size:
		return target.UnmarshalText([]byte(text))
	case *Cores:
		return target.UnmarshalText([]byte(text))
	case *secret.Secret:
		return target.UnmarshalText([]byte(text))
	case *RetryRule:
		return target.UnmarshalText([]byte(text))
	case *limits.Rate:
		return target.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("want true or false, not %q", text)
		}
		v.SetBool(b)
	case reflect.String:
		v.SetString(text)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("want a number such as 2 or 0.5, not %q", text)
		}
		v.SetFloat(f)
	default:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("want a whole number below 2^%d, not %q", v.Type().Bits()-1, text)
		}
		v.SetInt(n)
	}
	return nil
}

// parseList reads a list, or a text with commas between the elements.
func parseList(v reflect.Value, raw any) error {
	var list []string
	switch x := raw.(type) {
	case []string:
		list = x
	case string:
		list = splitList(x)
	default:
		return fmt.Errorf("want a list")
	}
	for _, text := range list {
		v.Set(reflect.Append(v, reflect.ValueOf(text).Convert(v.Type().Elem())))
	}
	return nil
}

// splitList splits at commas and drops what is empty.
func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// parseMap reads a mapping, or a text such as "default=4,gpu=1".
func parseMap(v reflect.Value, raw any) error {
	pairs, err := toMapping(raw)
	if err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, text := range pairs {
		element := reflect.New(v.Type().Elem()).Elem()
		if err := parseText(element, fmt.Sprint(text)); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		v.SetMapIndex(reflect.ValueOf(key), element)
	}
	return nil
}

func toMapping(raw any) (map[string]any, error) {
	if m, ok := raw.(map[string]any); ok {
		return m, nil
	}
	text, ok := raw.(string)
	if !ok {
		return nil, fmt.Errorf("want a mapping")
	}
	pairs := make(map[string]any)
	for _, part := range splitList(text) {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("want pairs such as default=4,gpu=1, not %q", text)
		}
		pairs[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return pairs, nil
}
