package main

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/workflow"
)

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
			return tellRemarks(c, files, plural(len(files), "definition"), strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail for warnings too")
	return cmd
}

// lintFiles reads and checks files and folders. JSON files of folders that are something
// else are passed over.
func (c *cli) lintFiles(names []string) ([]*definitionFile, error) {
	var files []*definitionFile
	wanted := func(path string) bool { return filepath.Ext(path) == ".json" }
	err := eachFile(names, wanted, func(path string, named bool) error {
		text, err := c.readDefinition(path)
		if err != nil {
			return err
		}
		f := lint(path, text)
		if !named && f.definition != nil && f.definition.ID == "" && !bytes.Contains(text, []byte(`"steps"`)) {
			c.notef("%s: no definition, passed over", path)
			return nil
		}
		files = append(files, f)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(files) == 0:
		return nil, &notFoundError{"there are no definitions: " + strings.Join(names, ", ")}
	}
	reportTwins(files)
	return files, nil
}

func lint(name string, text []byte) *definitionFile {
	f := &definitionFile{name: name, text: text}
	f.definition, f.faults = workflow.Lint(text)
	return f
}

// reportTwins reports files that have the id of another one.
func reportTwins(files []*definitionFile) {
	first := map[string]string{}
	for _, f := range files {
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

// readDefinition reads a file, or standard input.
func (c *cli) readDefinition(name string) ([]byte, error) {
	// What is longer is refused by its length.
	text, err := c.readFile(name, workflow.MaxText)
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

func (f *definitionFile) report() any {
	report := fileReport{File: f.name, Valid: !f.refused(), Faults: f.faults}
	if f.definition != nil {
		report.ID = f.definition.ID
	}
	if f.faults == nil {
		report.Faults = []workflow.Fault{}
	}
	return report
}

func (f *definitionFile) remarks() []remark {
	found := make([]remark, len(f.faults))
	for i, fault := range f.faults {
		found[i] = f.remark(fault)
	}
	return found
}

// remark is a fault of the file, which also the server may have found.
func (f *definitionFile) remark(fault workflow.Fault) remark {
	hint := fault.Hint
	fault.Hint = ""
	return remark{file: f.name, text: fault.String(), hint: hint, warning: fault.Warning}
}

// inOrder sorts files so that definitions come after those that they start.
func inOrder(files []*definitionFile) []*definitionFile {
	rank := map[string]int{}
	byID := map[string]*definitionFile{}
	for _, f := range files {
		byID[f.definition.ID] = f
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
	slices.SortStableFunc(sorted, func(a, b *definitionFile) int { return cmp.Compare(rank[a.definition.ID], rank[b.definition.ID]) })
	return sorted
}
