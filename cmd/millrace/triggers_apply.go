package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/trigger"
)

func (c *cli) triggersApplyCommand() *cobra.Command {
	var dryRun, prune bool
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Make or change triggers",
		Long: `Make the triggers of files, or change them; they take effect within seconds. Of a folder
all YAML and JSON files are read, those in its folders too; - is standard input. All are
checked first, by this command and by the server, and when one has an error none is
applied. What the server has already is unchanged, so that a deployment can apply
everything each time.

--prune deletes the triggers that the server has and the files do not.`,
		Example: `  millrace triggers apply orders.yaml
  millrace triggers apply --dry-run triggers/
  millrace triggers apply --prune triggers/`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			files, err := c.readTriggers(names)
			if err != nil {
				return err
			}
			if failures, _ := countRemarks(files); failures > 0 {
				if err := printRemarks(c.err, files); err != nil {
					return err
				}
				return &exitError{exitFailure, fmt.Sprintf("nothing was applied: the triggers have %s", plural(failures, "error"))}
			}
			return c.withAPI(func(api *client.Client) error {
				a := applying{cli: c, api: api, files: files, dryRun: dryRun, prune: prune}
				return a.run(cmd.Context())
			})
		},
	}
	addDryRun(cmd, &dryRun)
	cmd.Flags().BoolVar(&prune, "prune", false, "delete the triggers that the files do not have")
	return cmd
}

// applying is one apply.
type applying struct {
	*cli
	api           *client.Client
	files         []*triggerFile
	dryRun, prune bool
	done          []changedTrigger
}

// run checks all, applies all, and prints what became of them also when one of them failed.
func (a *applying) run(ctx context.Context) error {
	err := a.check(ctx)
	if err == nil && !a.dryRun {
		a.done = nil
		err = a.each(func(f *triggerFile, d *trigger.Document) error { return a.apply(ctx, f, d, false) })
	}
	if err == nil && a.prune {
		err = a.deleteOthers(ctx)
	}
	return a.printTriggers(a.done, err)
}

// check asks the server what it would say of all of them.
func (a *applying) check(ctx context.Context) error {
	failures := 0
	err := a.each(func(f *triggerFile, d *trigger.Document) error {
		err := a.apply(ctx, f, d, true)
		refused, ok := errors.AsType[*client.Problem](err)
		if !ok || len(refused.Errors) == 0 {
			return err
		}
		found := make([]trigger.Fault, len(refused.Errors))
		for i, e := range refused.Errors {
			found[i] = trigger.Fault{Pointer: e.Pointer, Code: e.Code, Message: e.Message, Hint: e.Hint}
		}
		d.Locate(found)
		failures += len(found)
		for _, fault := range found {
			if err := f.remark(fault).print(a.err); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && failures > 0 {
		a.done = nil
		err = &exitError{exitFailure, fmt.Sprintf("nothing was applied: the triggers have %s", plural(failures, "error"))}
	}
	if err != nil {
		a.done = nil
	}
	return err
}

func (a *applying) each(do func(f *triggerFile, d *trigger.Document) error) error {
	for _, f := range a.files {
		for j := range f.documents {
			if err := do(f, &f.documents[j]); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

// apply applies one definition. Warnings are printed when it is checked.
func (a *applying) apply(ctx context.Context, f *triggerFile, d *trigger.Document, dryRun bool) error {
	answer, err := a.api.ApplyTrigger(ctx, d.Definition.ID, d.JSON, dryRun)
	if err != nil {
		return err
	}
	a.done = append(a.done, changedTrigger{Trigger: answer.Trigger, Status: answer.Status, DryRun: a.dryRun, File: f.name})
	if !dryRun {
		return nil
	}
	warnings := make([]trigger.Fault, len(answer.Warnings))
	for i, w := range answer.Warnings {
		warnings[i] = trigger.Fault{Pointer: w.Pointer, Code: w.Code, Message: w.Message, Hint: w.Hint, Warning: true}
	}
	d.Locate(warnings)
	for _, w := range warnings {
		if err := f.remark(w).print(a.err); err != nil {
			return err
		}
	}
	return nil
}

// deleteOthers deletes the triggers that no file has.
func (a *applying) deleteOthers(ctx context.Context) error {
	kept := map[string]bool{}
	for _, f := range a.files {
		for _, d := range f.documents {
			kept[d.Definition.ID] = true
		}
	}
	for t, err := range a.api.Triggers(ctx, "", pageSize) {
		if err != nil {
			return err
		}
		if kept[t.ID] {
			continue
		}
		gone, err := a.api.DeleteTrigger(ctx, t.ID, a.dryRun)
		if err != nil {
			return err
		}
		a.done = append(a.done, changedTrigger{Trigger: gone, Status: "deleted", DryRun: a.dryRun})
	}
	return nil
}
