package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/workflow"
)

func (c *cli) workflowsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workflows",
		Aliases: []string{"workflow", "wf"},
		Short:   "Check, upload and look at definitions of workflows",
		Long: `Check definitions of workflows, upload them, and look at those that a server has. A
definition is a JSON file; docs/workflow-format.md describes the format.`,
		Example: `  millrace workflows lint loan.json
  millrace workflows apply definitions/
  millrace workflows list
  millrace workflows get LOS::loan-application --version 2
  millrace workflows graph loan.json`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.workflowsLintCommand(), c.workflowsApplyCommand(), c.workflowsGetCommand(), c.workflowsListCommand(),
		c.workflowsVersionsCommand(), c.workflowsGraphCommand())
	return cmd
}

func (c *cli) workflowsListCommand() *cobra.Command {
	var limit int
	var keyword string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List definitions",
		Long:    `List the latest version of each definition, by id.`,
		Example: `  millrace workflows list
  millrace workflows list --keyword loan -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				items, err := firstOf(api.Definitions(ctx, keyword, pageOf(limit)), limit)
				if err != nil {
					return err
				}
				return render(c, w, c.definitionListing(items))
			})
		},
	}
	cmd.Flags().StringVar(&keyword, "keyword", "", "definitions whose id or name contains this")
	addLimit(cmd, &limit)
	return cmd
}

func (c *cli) workflowsVersionsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "versions ID",
		Short: "List the versions of a definition, the latest first",
		Long: `List the versions of a definition, the latest first. Versions are never changed, and an
instance keeps the one that it was started with.`,
		Example: `  millrace workflows versions LOS::loan-application`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.listing(cmd.Context(), limit, func(ctx context.Context, api *client.Client, w io.Writer) error {
				items, err := firstOf(api.DefinitionVersions(ctx, ids[0], pageOf(limit)), limit)
				if err != nil {
					return err
				}
				l := c.definitionListing(items)
				l.name = func(d client.Definition) string { return fmt.Sprint(d.Version) }
				return render(c, w, l)
			})
		},
	}
	addLimit(cmd, &limit)
	return cmd
}

func (c *cli) definitionListing(items []client.Definition) listing[client.Definition] {
	type definition = client.Definition
	now, wide := c.now(), c.output == "wide"
	return listing[definition]{
		items: items,
		name:  func(d definition) string { return d.ID },
		empty: "no definitions: upload one with millrace workflows apply FILE",
		columns: []column[definition]{
			{title: "ID", cell: func(d definition) string { return d.ID }},
			{title: "VERSION", cell: func(d definition) string { return fmt.Sprint(d.Version) }},
			{title: "NAME", cell: func(d definition) string { return shorten(d.Name, wide) }},
			{title: "AGE", cell: func(d definition) string { return age(now, d.UploadedAt) }},
			{title: "KIND", wide: true, cell: func(d definition) string { return d.Kind }},
			{title: "BY", wide: true, cell: func(d definition) string { return dash(d.UploadedBy) }},
			{title: "DESCRIPTION", wide: true, cell: func(d definition) string { return dash(d.Description) }},
		},
	}
}

func addVersion(cmd *cobra.Command, version *int) {
	cmd.Flags().IntVar(version, "version", 0, "this version; the latest without it")
}

func checkVersion(version int) error {
	if version < 0 {
		return usagef("--version: want 1 or more, not %d", version)
	}
	return nil
}

func (c *cli) workflowsGetCommand() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Print a definition as it was uploaded, with its version",
		Long: `Print a definition as it was uploaded, with its version. What is printed can be
applied again: as long as nothing else has changed, that makes no new version.`,
		Example: `  millrace workflows get LOS::loan-application > loan.json
  millrace workflows get LOS::loan-application --version 1 -o yaml`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if err := checkVersion(version); err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				text, err := api.DefinitionText(cmd.Context(), ids[0], version)
				switch {
				case err != nil:
					return err
				case c.output == "name":
					_, err = fmt.Fprintln(c.out, ids[0])
					return err
				default:
					return c.document(c.out, text)
				}
			})
		},
	}
	addVersion(cmd, &version)
	return cmd
}

func (c *cli) workflowsGraphCommand() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use:   "graph FILE|ID",
		Short: "Draw a definition as a Mermaid flowchart",
		Long: `Draw a definition as a Mermaid flowchart: that of a file (- is standard input), or the
one of an id that the server has. A file is drawn although it has faults.`,
		Example: `  millrace workflows graph loan.json > loan.mmd
  millrace workflows graph LOS::loan-application --version 2`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := checkVersion(version); err != nil {
				return err
			}
			text, err := c.definitionOf(cmd.Context(), names[0], version)
			if err != nil {
				return err
			}
			d, faults := workflow.Lint(text)
			if d == nil {
				return fmt.Errorf("%s: %w", names[0], workflow.Refused(faults))
			}
			if c.output == "json" || c.output == "yaml" {
				return c.document(c.out, map[string]string{"id": d.ID, "mermaid": d.Mermaid()})
			}
			_, err = io.WriteString(c.out, d.Mermaid())
			return err
		},
	}
	addVersion(cmd, &version)
	return cmd
}

// definitionOf returns the text of a file, or of a definition that the server has.
func (c *cli) definitionOf(ctx context.Context, name string, version int) ([]byte, error) {
	if version == 0 && isFile(name) {
		return c.readDefinition(name)
	}
	if !workflow.IsDefinitionID(name) {
		return nil, usagef("%s: there is no such file, and it is no id of a definition", name)
	}
	var text []byte
	err := c.withAPI(func(api *client.Client) error {
		var err error
		text, err = api.DefinitionText(ctx, name, version)
		return err
	})
	return text, err
}
