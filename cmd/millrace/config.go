package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
)

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration",
		Long: `Check and print the configuration that "millrace serve" would use here: the defaults,
the file given by --config or MILLRACE_CONFIG, the environment, and flags.`,
		Example: `  millrace config check --config millrace.yaml
  millrace config print
  millrace config reference`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.configCheckCommand(), c.configPrintCommand(), c.configReferenceCommand())
	return cmd
}

func (c *cli) configCheckCommand() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report everything that is wrong with the configuration",
		Long: `Report everything that is wrong with the configuration, each fault with the file and
line, the variable or the flag that it comes from. Nothing is connected to: for that
there is "millrace doctor".`,
		Example: `  millrace config check --config millrace.yaml
  MILLRACE_WORKER_LEASE=10s millrace config check --set worker.heartbeat=2s`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			sources, err := c.withSets(c.sources(), sets)
			if err != nil {
				return err
			}
			config, origins, err := sources.LoadWithOrigins()
			if err != nil {
				return err
			}
			if c.output == "json" || c.output == "yaml" {
				return c.document(c.out, map[string]any{"valid": true, "settings_set": len(origins)})
			}
			_, err = fmt.Fprintf(c.out, "The configuration is valid: %d of %d settings are set. Data directory: %s\n",
				len(origins), len(configs.Settings()), config.DataDir)
			return err
		},
	}
	addSets(cmd, &sets)
	return cmd
}

func (c *cli) configPrintCommand() *cobra.Command {
	var sets []string
	var example bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration that holds, without its secrets",
		Long: `Print the configuration that holds as YAML (or JSON with -o json). What is not a
default is followed by where it came from; secrets are asterisks. --example prints a
commented file with all defaults instead, to start from.`,
		Example: `  millrace config print
  millrace config print --example > millrace.yaml`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if example {
				return configs.WriteExample(c.out)
			}
			sources, err := c.withSets(c.sources(), sets)
			if err != nil {
				return err
			}
			config, origins, err := sources.LoadWithOrigins()
			if err != nil {
				return err
			}
			if c.output == "json" {
				return c.document(c.out, config.Redacted())
			}
			return config.WriteYAML(c.out, origins)
		},
	}
	addSets(cmd, &sets)
	cmd.Flags().BoolVar(&example, "example", false, "print a commented file with all defaults")
	return cmd
}

func (c *cli) configReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reference",
		Short: "Print the reference of all settings",
		Long:  `Print the reference of all settings as Markdown, or as a list with -o json, yaml or name.`,
		Example: `  millrace config reference | less
  millrace config reference -o name`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if c.output == "table" || c.output == "wide" {
				return configs.WriteReference(c.out)
			}
			var items []setting
			for _, s := range configs.Settings() {
				items = append(items, setting{
					Path: s.Path, Type: s.Type, Default: s.Default, Env: s.Env, Flag: s.Flag, Choices: s.Choices, Doc: s.Doc,
				})
			}
			return render(c, c.out, listing[setting]{items: items, name: func(s setting) string { return s.Path }})
		},
	}
}

// setting is a setting as JSON shows it.
type setting struct {
	Path    string   `json:"path"`
	Type    string   `json:"type"`
	Default string   `json:"default,omitempty"`
	Env     string   `json:"env"`
	Flag    string   `json:"flag,omitempty"`
	Choices []string `json:"choices,omitempty"`
	Doc     string   `json:"doc"`
}

func addSets(cmd *cobra.Command, sets *[]string) {
	cmd.Flags().StringArrayVar(sets, "set", nil, "set any setting, path=value (repeatable)")
	_ = cmd.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var paths []string
		for _, s := range configs.Settings() {
			paths = append(paths, s.Path+"=")
		}
		return paths, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}

// withSets adds the values of --set.
func (c *cli) withSets(sources configs.Sources, sets []string) (configs.Sources, error) {
	for _, text := range sets {
		path, value, ok := strings.Cut(text, "=")
		if !ok {
			return sources, usagef("--set: want path=value, not %q", text)
		}
		sources.Overrides = append(sources.Overrides, configs.Override{Path: path, Value: value, Origin: "--set"})
	}
	return sources, nil
}
