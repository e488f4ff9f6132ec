package configs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds what is read as a configuration: more is a mistake.
const maxFileBytes = 1 << 20

// fileLayer reads the YAML file, if there is one.
func (s Sources) fileLayer(env environ, known map[string]*field, found *faults) layer {
	r := fileReader{env: env, known: known, found: found, layer: newLayer()}
	r.name = s.fileName(env)
	if r.name == "" {
		return r.layer
	}
	content, err := readBounded(r.name, maxFileBytes)
	if err != nil {
		origin := "--config"
		if s.File == "" {
			origin = "MILLRACE_CONFIG"
		}
		found.add(origin, "", "%s", cause(err))
		return r.layer
	}
	r.read(content)
	return r.layer
}

// fileName is the path of the configuration file, empty when there is none.
func (s Sources) fileName(env environ) string { return cmp.Or(s.File, env.get("MILLRACE_CONFIG")) }

// fileReader turns a YAML document into a layer.
type fileReader struct {
	name  string
	env   environ
	known map[string]*field
	found *faults
	layer layer
}

func (r *fileReader) read(content []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if !errors.Is(err, io.EOF) { // an empty file says nothing, which is fine
			r.found.add(r.name, "", "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		return
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.found.add(r.name, "", "holds more than one document")
		return
	}
	r.mapping("", document.Content[0])
}

func (r *fileReader) fault(n *yaml.Node, path, format string, args ...any) {
	r.found.add(r.origin(n), path, format, args...)
}

func (r *fileReader) origin(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.name, n.Line) }

// mapping reads the keys below path, "" for the whole document.
func (r *fileReader) mapping(path string, n *yaml.Node) {
	n = resolve(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, path, "want a mapping of settings")
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		child := strings.TrimPrefix(path+"."+key.Value, ".")
		if line, again := seen[key.Value]; again {
			r.fault(key, child, "is already set in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		r.entry(child, key, value)
	}
}

// entry reads one key: a setting, a section, or a fault.
func (r *fileReader) entry(path string, key, value *yaml.Node) {
	if _, ok := r.known[path]; ok {
		r.setting(path, value)
		return
	}
	if r.isSection(path) {
		r.mapping(path, value)
		return
	}
	r.fault(key, path, "is not a setting%s", suggestion(path, r.names()))
}

func (r *fileReader) isSection(path string) bool {
	for known := range r.known {
		if strings.HasPrefix(known, path+".") {
			return true
		}
	}
	return slices.ContainsFunc(tables(), func(t table) bool { return t.path == path }) // it may have no rows
}

// names returns all settings and sections, for suggestions.
func (r *fileReader) names() []string {
	all := make(map[string]bool)
	for path := range r.known {
		for i, c := range path {
			if c == '.' {
				all[path[:i]] = true
			}
		}
		all[path] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// setting reads the value of a setting. Null leaves the default.
func (r *fileReader) setting(path string, n *yaml.Node) {
	n = resolve(n)
	if isNull(n) {
		return
	}
	var value any
	var err error
	switch n.Kind {
	case yaml.ScalarNode:
		value, err = r.env.expand(n.Value)
	case yaml.SequenceNode:
		value, err = r.list(n)
	case yaml.MappingNode:
		value, err = r.pairs(n)
	}
	if err != nil {
		r.fault(n, path, "%s", err)
		return
	}
	r.layer.put(path, value, r.origin(n))
}

func (r *fileReader) list(n *yaml.Node) ([]string, error) {
	list := make([]string, 0, len(n.Content))
	for _, element := range n.Content {
		text, err := r.scalar(element)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

func (r *fileReader) pairs(n *yaml.Node) (map[string]any, error) {
	pairs := make(map[string]any, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		text, err := r.scalar(n.Content[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Content[i].Value, err)
		}
		pairs[n.Content[i].Value] = text
	}
	return pairs, nil
}

func (r *fileReader) scalar(n *yaml.Node) (string, error) {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode {
		return "", errors.New("want a single value in here")
	}
	return r.env.expand(n.Value)
}

// resolve returns what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// readBounded reads a file of at most limit bytes.
func readBounded(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only: nothing can be lost
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("read %s: is longer than %d bytes", name, limit)
	}
	return content, nil
}
