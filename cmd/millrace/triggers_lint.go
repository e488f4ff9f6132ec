package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/trigger"
)

// triggerFile is a file with definitions, and what is wrong with them.
type triggerFile struct {
	name      string
	documents []trigger.Document
	faults    []trigger.Fault
}

func (c *cli) triggersLintCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check triggers without a server",
		Long: `Check triggers and print everything that is wrong with them, with its place. Of a folder
all YAML and JSON files are checked, those in its folders too; - is standard input. Which
secrets may be named, and whether the workflows exist, only the server knows: see apply
--dry-run. The exit code is 1 when there are errors, with --strict also when there are
warnings.`,
		Example: `  millrace triggers lint orders.yaml
  millrace triggers lint --strict triggers/
  cat orders.yaml | millrace triggers lint - -o json`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, names []string) error {
			files, err := c.readTriggers(names)
			if err != nil {
				return err
			}
			count := 0
			for _, f := range files {
				count += len(f.documents)
			}
			return tellRemarks(c, files, plural(count, "trigger"), strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail for warnings too")
	return cmd
}

// offline is what is known without a server: brokers are there, and secrets are right.
func offline() trigger.Defaults {
	return trigger.Defaults{Brokers: []string{"installation:9092"}, Secrets: trigger.Secrets{Unknown: true}}
}

// readTriggers reads and checks the triggers of files and folders; of folders those in YAML
// and JSON files that are not hidden.
func (c *cli) readTriggers(names []string) ([]*triggerFile, error) {
	var files []*triggerFile
	wanted := func(path string) bool {
		return !strings.HasPrefix(filepath.Base(path), ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
	}
	err := eachFile(names, wanted, func(path string, _ bool) error {
		f, err := c.readTriggerFile(path)
		files = append(files, f)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(files) == 0:
		return nil, &notFoundError{"there are no triggers: " + strings.Join(names, ", ")}
	}
	reportSameIDs(files)
	return files, nil
}

// maxTriggerFile bounds a file of triggers.
const maxTriggerFile = 64 << 20

func (c *cli) readTriggerFile(name string) (*triggerFile, error) {
	text, err := c.readFile(name, maxTriggerFile)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read triggers: %w", err)
	case len(text) > maxTriggerFile:
		return nil, fmt.Errorf("read triggers: %s has more than %d MiB", name, maxTriggerFile>>20)
	}
	f := &triggerFile{name: name}
	f.documents, f.faults = trigger.ReadDocuments(text)
	for i := range f.documents {
		d := &f.documents[i]
		_, faults := trigger.Check(d.JSON, offline())
		d.Locate(faults)
		f.faults = append(f.faults, faults...)
	}
	slices.SortStableFunc(f.faults, func(a, b trigger.Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f, nil
}

// reportSameIDs reports triggers that have the id of another one.
func reportSameIDs(files []*triggerFile) {
	first := map[string]string{}
	for _, f := range files {
		for j := range f.documents {
			d := &f.documents[j]
			id := d.Definition.ID
			if other, twice := first[id]; twice && id != "" {
				faults := []trigger.Fault{{Pointer: "/id", Code: trigger.CodeDuplicate, Message: fmt.Sprintf("is that of a trigger in %s already", other)}}
				d.Locate(faults)
				f.faults = append(f.faults, faults...)
			}
			first[id] = f.name
		}
	}
}

// triggerReport is what is wrong with a file, as a document.
type triggerReport struct {
	File   string          `json:"file"`
	IDs    []string        `json:"ids"`
	Valid  bool            `json:"valid"`
	Faults []trigger.Fault `json:"faults"`
}

func (f *triggerFile) report() any {
	report := triggerReport{File: f.name, IDs: []string{}, Valid: trigger.Refused(f.faults) == nil, Faults: append([]trigger.Fault{}, f.faults...)}
	for _, d := range f.documents {
		report.IDs = append(report.IDs, d.Definition.ID)
	}
	return report
}

func (f *triggerFile) remarks() []remark {
	found := make([]remark, len(f.faults))
	for i, fault := range f.faults {
		found[i] = f.remark(fault)
	}
	return found
}

// remark is a fault of the file, which also the server may have found.
func (f *triggerFile) remark(fault trigger.Fault) remark {
	hint := fault.Hint
	fault.Hint = ""
	return remark{file: f.name, text: fault.String(), hint: hint, warning: fault.Warning}
}
