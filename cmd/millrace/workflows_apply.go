package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/workflow"
)

// appliedFile is what became of a file.
type appliedFile struct {
	client.Definition
	Status string `json:"status"`
	File   string `json:"file"`
}

func (c *cli) workflowsApplyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "apply FILE...",
		Aliases: []string{"upload"},
		Short:   "Upload definitions",
		Long: `Upload definitions. All are checked first (see lint), and when one has an error none
is uploaded. A definition that the server has as its latest version is unchanged, so that
a deployment can apply everything each time. Definitions are uploaded after those that
they start.`,
		Example: `  millrace workflows apply loan.json
  millrace workflows apply definitions/`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			files, err := c.lintFiles(names)
			if err != nil {
				return err
			}
			if failures, _ := countRemarks(files); failures > 0 {
				if err := printRemarks(c.err, files); err != nil {
					return err
				}
				return &exitError{exitFailure, fmt.Sprintf("nothing was uploaded: the definitions have %s", plural(failures, "error"))}
			}
			return c.withAPI(func(api *client.Client) error { return c.apply(cmd.Context(), api, inOrder(files)) })
		},
	}
	return cmd
}

// apply uploads files, and prints what became of them also when one of them failed.
func (c *cli) apply(ctx context.Context, api *client.Client, files []*definitionFile) error {
	var done []appliedFile
	var failure error
	for _, f := range files {
		answer, err := api.PutDefinition(ctx, f.text)
		if err != nil {
			failure = fmt.Errorf("%s: %w", f.name, err)
			break
		}
		status := "created"
		if answer.Unchanged {
			status = "unchanged"
		}
		done = append(done, appliedFile{answer.Definition, status, f.name})
		for _, w := range answer.Warnings {
			fault := workflow.Fault{Line: w.Line, Column: w.Column, Code: w.Code, Message: w.Message, Hint: w.Hint, Warning: true}
			if err := f.remark(fault).print(c.err); err != nil {
				return err
			}
		}
	}
	if len(done) > 0 {
		if err := render(c, c.out, appliedListing(done)); err != nil {
			return err
		}
	}
	return failure
}

func appliedListing(items []appliedFile) listing[appliedFile] {
	return listing[appliedFile]{
		items: items,
		name:  func(a appliedFile) string { return a.ID },
		columns: []column[appliedFile]{
			{title: "ID", cell: func(a appliedFile) string { return a.ID }},
			{title: "VERSION", cell: func(a appliedFile) string { return fmt.Sprint(a.Version) }},
			{title: "STATUS", cell: func(a appliedFile) string { return a.Status }},
			{title: "FILE", cell: func(a appliedFile) string { return a.File }},
		},
	}
}
