package trigger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// maxNodes bounds what the aliases of a document may make of it.
const maxNodes = 100_000

// readYAML reads the documents of a YAML text as JSON. Empty ones are left out.
func readYAML(text []byte) (documents []Document, faults []Fault) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var root yaml.Node
		switch err := decoder.Decode(&root); {
		case errors.Is(err, io.EOF):
			return documents, faults
		case err != nil:
			return documents, append(faults, yamlFault(err))
		}
		if len(root.Content) == 0 || root.Content[0].ShortTag() == "!!null" {
			continue
		}
		r := yamlReader{places: places{}, left: maxNodes}
		raw := r.value(nil, root.Content[0], "", nil)
		faults = append(faults, r.faults...)
		if len(r.faults) == 0 {
			documents = append(documents, Document{JSON: raw, Line: root.Content[0].Line, places: r.places})
		}
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// yamlFault turns an error of the YAML package into a fault.
func yamlFault(err error) Fault {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	f := Fault{Line: 1, Column: 1, Code: CodeSyntax}
	if found := yamlLine.FindStringSubmatch(message); found != nil {
		f.Line, _ = strconv.Atoi(found[1])
		message = strings.Replace(message, found[0], "", 1)
	}
	f.Message = "is not YAML: " + message
	switch {
	case strings.Contains(message, "unknown anchor"), strings.Contains(message, "did not find expected alphabetic"):
		f.Hint = `a text that begins with * is put in quotes, such as "*/5 * * * *"`
	case strings.Contains(message, "mapping values are not allowed"):
		f.Hint = "a text with a colon and a space in it is put in quotes"
	case strings.Contains(message, "cannot start any token"):
		f.Hint = "YAML is indented by spaces, not by tabs"
	}
	return f
}

// yamlReader turns a node into JSON and notes where everything stands.
type yamlReader struct {
	places places
	faults []Fault
	left   int
}

func (r *yamlReader) fault(n *yaml.Node, pointer, code, format string, args ...any) {
	r.faults = append(r.faults, Fault{Line: n.Line, Column: n.Column, Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
}

// value appends a node as JSON. within are the anchors that it is part of.
func (r *yamlReader) value(out []byte, n *yaml.Node, pointer string, within []*yaml.Node) []byte {
	if r.left--; r.left < 0 {
		if r.left == -1 {
			r.fault(n, pointer, CodeTooLarge, "has aliases that make it too large")
		}
		return append(out, "null"...)
	}
	if _, known := r.places[pointer]; !known {
		r.places[pointer] = [2]int{n.Line, n.Column}
	}
	switch n.Kind {
	case yaml.AliasNode:
		for _, outer := range within {
			if outer == n.Alias {
				r.fault(n, pointer, CodeInvalid, "is an alias of something that it is part of")
				return append(out, "null"...)
			}
		}
		return r.value(out, n.Alias, pointer, append(within, n.Alias))
	case yaml.MappingNode:
		return r.mapping(out, n, pointer, within)
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, element := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = r.value(out, element, item(pointer, i), within)
		}
		return append(out, ']')
	default:
		return r.scalar(out, n, pointer)
	}
}

func (r *yamlReader) mapping(out []byte, n *yaml.Node, pointer string, within []*yaml.Node) []byte {
	out = append(out, '{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, member := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode || name.ShortTag() == "!!merge" {
			r.fault(name, pointer, CodeInvalid, "has a name that is no text: merges and complex names are not supported")
			continue
		}
		if len(out) > 0 && out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		at := pointer + "/" + strictjson.Escape(name.Value)
		if _, known := r.places[at]; !known {
			r.places[at] = [2]int{name.Line, name.Column}
		}
		out = append(rawjson.Quote(out, name.Value), ':')
		out = r.value(out, member, at, within)
	}
	return append(out, '}')
}

func (r *yamlReader) scalar(out []byte, n *yaml.Node, pointer string) []byte {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return rawjson.Quote(out, n.Value)
	case "!!null":
		return append(out, "null"...)
	case "!!bool", "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(out, n.Value...)
		}
		var v any
		if err := n.Decode(&v); err == nil {
			if raw, err := json.Marshal(v); err == nil {
				return append(out, raw...)
			}
		}
		r.fault(n, pointer, CodeInvalid, "is a number that JSON does not have")
	default:
		r.fault(n, pointer, CodeInvalid, "has the tag %s, which is not supported", n.ShortTag())
	}
	return append(out, "null"...)
}
