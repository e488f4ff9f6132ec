package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/workflow"
)

// stdin is the name of standard input, among files and in what is printed.
const stdin = "-"

// definitionFile is a file with a definition, and what is wrong with it.
type definitionFile struct {
	name       string
	text       []byte
	definition *workflow.Definition // nil when the file is no JSON
	faults     []workflow.Fault
}

func (f *definitionFile) refused() bool { return workflow.Refused(f.faults) != nil }

func (c *cli) workflowsLintCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check definitions without a server",
		Long: `Check definitions and print everything that is wrong with them, with its place. Of a
folder all JSON files that look like definitions are checked, those in its folders too;
- is standard input. The exit code is 1 when there are errors, with --strict also when
there are warnings.`,
		Example: `  millrace workflows lint loan.json
  millrace workflows lint --strict definitions/
  cat loan.json | millrace workflows lint - -o json`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, names []string) error {
			files, err := c.lintFiles(names)
			if err != nil {
				return err
			}
			if err := c.printFaults(c.out, files, c.output == "json" || c.output == "yaml"); err != nil {
				return err
			}
			failures, warnings := countFaults(files)
			c.notef("%s: %s, %s", plural(len(files), "definition"), plural(failures, "error"), plural(warnings, "warning"))
			if failures > 0 || strict && warnings > 0 {
				return &exitError{code: exitFailure}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail for warnings too")
	return cmd
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func countFaults(files []definitionFile) (failures, warnings int) {
	for _, f := range files {
		for _, fault := range f.faults {
			if fault.Warning {
				warnings++
				continue
			}
			failures++
		}
	}
	return failures, warnings
}

// lintFiles reads and checks files and folders.
func (c *cli) lintFiles(names []string) ([]definitionFile, error) {
	var files []definitionFile
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case name != stdin && err != nil:
			return nil, &notFoundError{fmt.Sprintf("%s: there is no such file", name)}
		case name == stdin || !info.IsDir():
			text, err := c.readDefinition(name)
			if err != nil {
				return nil, err
			}
			files = append(files, lint(name, text))
		default:
			found, err := c.lintFolder(name)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	if len(files) == 0 {
		return nil, &notFoundError{"there are no definitions: " + strings.Join(names, ", ")}
	}
	reportTwins(files)
	return files, nil
}

// lintFolder checks the definitions of a folder. JSON files that are something else are
// passed over.
func (c *cli) lintFolder(folder string) ([]definitionFile, error) {
	var files []definitionFile
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".json":
			return nil
		}
		text, err := c.readDefinition(path)
		if err != nil {
			return err
		}
		f := lint(path, text)
		if f.definition != nil && f.definition.ID == "" && !bytes.Contains(text, []byte(`"steps"`)) {
			c.notef("%s: no definition, passed over", path)
			return nil
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func lint(name string, text []byte) definitionFile {
	f := definitionFile{name: name, text: text}
	f.definition, f.faults = workflow.Lint(text)
	return f
}

// reportTwins reports files that have the id of another one.
func reportTwins(files []definitionFile) {
	first := map[string]string{}
	for i := range files {
		f := &files[i]
		if f.definition == nil || f.definition.ID == "" {
			continue
		}
		if other, twice := first[f.definition.ID]; twice {
			line, column := workflow.Locate(f.text, "id")
			f.faults = workflow.Sorted(append(f.faults, workflow.Fault{
				Line: line, Column: column, Path: "id", Pointer: "/id", Code: "duplicate_definition",
				Message: fmt.Sprintf("%s defines %q already", other, f.definition.ID),
			}))
			continue
		}
		first[f.definition.ID] = f.name
	}
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return name == stdin || err == nil && !info.IsDir()
}

// readDefinition reads a file, or standard input.
func (c *cli) readDefinition(name string) ([]byte, error) {
	source := c.in
	if name != stdin {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a definition: %w", err)
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	// What is longer is refused by its length.
	text, err := io.ReadAll(io.LimitReader(source, workflow.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("read a definition: %w", err)
	}
	return text, nil
}

// fileReport is what is wrong with a file, as a document.
type fileReport struct {
	File   string           `json:"file"`
	ID     string           `json:"id,omitempty"`
	Valid  bool             `json:"valid"`
	Faults []workflow.Fault `json:"faults"`
}

// printFaults prints the faults as a compiler does, or as a document.
func (c *cli) printFaults(w io.Writer, files []definitionFile, document bool) error {
	if document {
		reports := make([]fileReport, len(files))
		for i, f := range files {
			reports[i] = fileReport{File: f.name, Valid: !f.refused(), Faults: f.faults}
			if f.definition != nil {
				reports[i].ID = f.definition.ID
			}
			if f.faults == nil {
				reports[i].Faults = []workflow.Fault{}
			}
		}
		return c.document(w, reports)
	}
	for _, f := range files {
		for _, fault := range f.faults {
			if err := printFault(w, f.name, fault); err != nil {
				return err
			}
		}
	}
	return nil
}

func printFault(w io.Writer, file string, f workflow.Fault) error {
	if file == stdin {
		file = "stdin"
	}
	hint := f.Hint
	f.Hint = ""
	if _, err := fmt.Fprintln(w, oneLine(file+":"+f.String())); err != nil || hint == "" {
		return err
	}
	_, err := fmt.Fprintln(w, "    "+oneLine(hint))
	return err
}

// inOrder sorts files so that definitions come after those that they start.
func inOrder(files []definitionFile) []definitionFile {
	rank := map[string]int{}
	byID := map[string]*definitionFile{}
	for i := range files {
		byID[files[i].definition.ID] = &files[i]
	}
	var visit func(id string) int
	visit = func(id string) int {
		f := byID[id]
		if f == nil {
			return 0
		}
		if r, known := rank[id]; known {
			return r // or it starts itself in the end, and then any order will do
		}
		rank[id] = 0
		most := 0
		for _, r := range workflow.References(f.text) {
			most = max(most, visit(r.ID))
		}
		rank[id] = most + 1
		return most + 1
	}
	sorted := slices.Clone(files)
	for i := range sorted {
		visit(sorted[i].definition.ID)
	}
	slices.SortStableFunc(sorted, func(a, b definitionFile) int { return cmp.Compare(rank[a.definition.ID], rank[b.definition.ID]) })
	return sorted
}
