package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
)

// settingFlag is a flag that overrides one setting. It takes any text: the
// configuration checks it together with everything else.
type settingFlag struct {
	setting configs.Setting
	text    string
}

func (f *settingFlag) String() string { return f.text }
func (f *settingFlag) Type() string   { return f.setting.Type }

func (f *settingFlag) Set(text string) error {
	f.text = text
	return nil
}

// addSettings adds the flags of all settings that have one, save those that skip
// names, and --set for the others.
func addSettings(cmd *cobra.Command, skip func(path string) bool) func() []configs.Override {
	var flags []*settingFlag
	for _, s := range configs.Settings() {
		if s.Flag == "" || s.Path == "data_dir" || skip(s.Path) { // --data-dir is global
			continue
		}
		f := &settingFlag{setting: s}
		usage := s.Doc
		if s.Default != "" {
			usage += " Default: " + s.Default + "."
		}
		flag := cmd.Flags().VarPF(f, s.Flag, "", usage)
		if s.Type == "bool" {
			flag.NoOptDefVal = strconv.FormatBool(true)
		}
		if len(s.Choices) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, fixed(s.Choices)) // the flag exists
		}
		flags = append(flags, f)
	}
	return func() []configs.Override {
		var overrides []configs.Override
		for _, f := range flags {
			if cmd.Flags().Changed(f.setting.Flag) {
				overrides = append(overrides, configs.Override{Path: f.setting.Path, Value: f.text, Origin: "--" + f.setting.Flag})
			}
		}
		return overrides
	}
}

func addDSN(cmd *cobra.Command, dsn *string) {
	cmd.Flags().StringVar(dsn, "postgres-dsn", "", "data source name of the database; prefer MILLRACE_POSTGRES_DSN, which ps does not show")
}

func dsnOverride(dsn string) []configs.Override {
	if dsn == "" {
		return nil
	}
	return []configs.Override{{Path: "postgres.dsn", Value: dsn, Origin: "--postgres-dsn"}}
}

// errNoAnswer is the cause of contexts that bound a first connection.
var errNoAnswer = errors.New("no answer in time")

// plainly says that time ran out in place of how the library noticed it.
func plainly(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errNoAnswer) {
		return err
	}
	text := strings.TrimSuffix(err.Error(), ": "+context.DeadlineExceeded.Error())
	return &exitError{exitTimeout, fmt.Sprintf("%s: %s", text, errNoAnswer)}
}
