package configs

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteReference writes the reference of all settings as Markdown: one table per
// section, with path, default, variable, flag and meaning.
func WriteReference(w io.Writer) error {
	var out strings.Builder
	out.WriteString(referenceHead)
	config := Default()
	for _, t := range tables() {
		t.add(&config, t.shown)
	}
	var top []*field
	for _, n := range config.tree().children {
		if n.setting != nil {
			top = append(top, n.setting)
		}
	}
	writeTable(&out, "Process", "Settings at the top of the file.", top)
	for _, n := range config.tree().children {
		writeSection(&out, n.key, n)
	}
	writeEngineVariables(&out)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write reference: %w", err)
	}
	return nil
}

const referenceHead = `<!-- Made from the struct tags in configs/config.go by: go test ./configs -run TestReference -update -->

# Configuration

Every setting can be given in a YAML file (` + "`--config`, `MILLRACE_CONFIG`" + `), by an environment variable, or on the
command line of ` + "`millrace up` and `millrace serve`" + ` (by its own flag or with ` + "`--set path=value`" + `). Later sources win:
defaults, file, the variables of workflow.v1 (at the end of this page), environment, flags. An unknown key is an error. ` + "`millrace config check`" + ` reports every fault at once;
` + "`millrace config print`" + ` shows what holds and where it came from.

- **Durations** are written as ` + "`1m30s`, `250ms` or `90d`" + `, **sizes** as ` + "`512KiB` or `1MiB`" + `, **lists** in variables and flags
  as ` + "`a,b`, **maps** as `default=4,gpu=1`" + `.
- In the file, ` + "`${VAR}` and `${VAR:default}`" + ` stand for environment variables; ` + "`$${`" + ` is the text itself.
- A variable that is set and empty counts as unset.
- **Secrets** can also be read from a file: ` + "`MILLRACE_POSTGRES_DSN_FILE=/run/secrets/dsn`" + `. Nothing prints them.
- Without ` + "`postgres.dsn`, `DATABASE_URL` and then the `PG*`" + ` variables (if ` + "`PGHOST` or `PGSERVICE`" + ` is set) are used, except by
  ` + "`millrace up`" + `, which would rather start a PostgreSQL of its own than write into a database meant for something else.
- ` + "`MILLRACE_API_URL` and `MILLRACE_TOKEN`" + ` tell the command line where the API is and how to be let in.
`

// writeSection writes a section and those inside it.
func writeSection(out *strings.Builder, path string, n *node) {
	if n.setting != nil {
		return
	}
	var fields []*field
	for _, child := range n.children {
		if child.setting != nil {
			fields = append(fields, child.setting)
		}
	}
	writeTable(out, "`"+path+"`", n.doc, fields)
	for _, child := range n.children {
		writeSection(out, path+"."+child.key, child)
	}
}

func writeTable(out *strings.Builder, title, doc string, fields []*field) {
	fmt.Fprintf(out, "\n## %s\n\n%s\n", title, doc)
	if len(fields) == 0 {
		return
	}
	out.WriteString("\n| Setting | Type | Default | Variable and flag | Meaning |\n|---|---|---|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n", f.Path, f.Type, f.defaultCell(), f.waysCell(), f.meaning())
	}
}

func (f *field) defaultCell() string {
	if f.Default == "" {
		return f.Unset
	}
	return "`" + f.Default + "`"
}

func (f *field) waysCell() string {
	if f.Flag == "" {
		return "`" + f.Env + "`"
	}
	return "`" + f.Env + "`, `--" + f.Flag + "`"
}

// meaning is the sentence of the setting with its accepted values.
func (f *field) meaning() string {
	if len(f.Choices) == 0 {
		return f.Doc
	}
	if f.Type == "list" {
		return f.Doc + " Any of " + names(f.Choices) + "."
	}
	if choices := names(f.Choices); strings.Contains(choices, ",") {
		return f.Doc + " One of " + choices + "."
	}
	return f.Doc
}

// WriteExample writes a configuration file that sets every setting to its
// default, with the meaning of each as a comment.
func WriteExample(w io.Writer) error {
	config := Default()
	comments := func(child *node, key *yaml.Node) {
		if child.setting == nil {
			key.HeadComment = comment(child.doc)
			return
		}
		text := child.setting.meaning()
		if child.setting.Default == "" && child.setting.Unset != "" {
			text += " Empty: " + child.setting.Unset + "."
		}
		key.HeadComment = comment(text)
	}
	root := config.tree().yaml(func(*field, *yaml.Node) {}, comments)
	root.HeadComment = exampleHead
	return encode(w, root)
}

const exampleHead = `# The settings of Millrace with their defaults: keep the ones you change.
# Made from configs/config.go by: go test ./configs -run TestExample -update

`

// comment wraps a text into comment lines of at most 90 columns.
func comment(text string) string {
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 90 {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
