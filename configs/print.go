package configs

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/secret"
)

// WriteYAML writes the configuration as a file that could be loaded again,
// except that secrets are asterisks. Of a data source name that is a URL only
// the password is. With origins, each value that is not a default is followed by
// a comment that says where it came from.
func (c Config) WriteYAML(w io.Writer, origins Origins) error {
	return encode(w, c.tree().yaml(func(f *field, n *yaml.Node) {
		if origin := origins[f.Path]; origin != "" {
			n.LineComment = "# " + origin
		}
	}, nil))
}

// Redacted returns the configuration as nested maps, for JSON, with secrets as
// asterisks and durations and sizes as text.
func (c Config) Redacted() map[string]any {
	var nested func(n *node) any
	nested = func(n *node) any {
		if n.setting != nil {
			return n.setting.plain()
		}
		m := make(map[string]any, len(n.children))
		for _, child := range n.children {
			m[child.key] = nested(child)
		}
		return m
	}
	return nested(c.tree()).(map[string]any)
}

// plain returns the value as JSON and YAML write it.
func (f *field) plain() any {
	switch x := f.value.Interface().(type) {
	case secret.Secret:
		if f.Path == "postgres.dsn" {
			return RedactDSN(x)
		}
		return x.String()
	case fmt.Stringer: // durations and sizes
		return format(f.value)
	}
	switch f.value.Kind() {
	case reflect.Slice:
		return listOf(f.value)
	case reflect.Map:
		if f.value.IsNil() {
			return map[string]int{}
		}
	}
	return f.value.Interface()
}

// yaml returns the section or setting as a YAML node. onSetting and onSection
// may add comments; onSection may be nil.
func (n *node) yaml(onSetting func(*field, *yaml.Node), onSection func(child *node, key *yaml.Node)) *yaml.Node {
	out := &yaml.Node{}
	if n.setting != nil {
		// Texts, numbers and lists of texts always encode.
		_ = out.Encode(n.setting.plain())
		if out.Kind != yaml.ScalarNode {
			out.Style = yaml.FlowStyle
		}
		onSetting(n.setting, out)
		return out
	}
	out.Kind = yaml.MappingNode
	for _, child := range n.children {
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: child.key}
		if onSection != nil {
			onSection(child, key)
		}
		out.Content = append(out.Content, key, child.yaml(onSetting, onSection))
	}
	return out
}

func encode(w io.Writer, n *yaml.Node) error {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(n); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// RedactDSN returns a data source name without what must not be seen: of a URL
// everything but the password and the parameters stays readable, of any other
// form nothing does.
func RedactDSN(dsn secret.Secret) string {
	u, err := url.Parse(dsn.Reveal())
	if err != nil || !slices.Contains([]string{"postgres", "postgresql"}, u.Scheme) {
		return dsn.String()
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), secret.Redacted)
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, secret.Redacted)
		}
	}
	u.RawQuery = query.Encode()
	// The asterisks are escaped in a URL; nobody will parse this one.
	return strings.ReplaceAll(u.String(), "%2A", "*")
}
