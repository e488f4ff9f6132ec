package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/build"
)

// buildInfo says what this binary was made from.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readBuild asks the binary itself: the Go tool writes there what it built.
func readBuild() buildInfo {
	b := buildInfo{Version: build.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func buildVersion() string { return readBuild().Version }

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Long:  `Print the version of this binary and what it was built from.`,
		Example: `  millrace version
  millrace version -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if c.output == "json" || c.output == "yaml" {
				return c.document(c.out, b)
			}
			text := "millrace " + b.Version
			if b.Commit != "" {
				text += " (" + b.Commit[:min(len(b.Commit), 12)]
				if b.Modified {
					text += ", modified"
				}
				text += ")"
			}
			_, err := fmt.Fprintf(c.out, "%s %s %s\n", text, b.Go, b.Platform)
			return err
		},
	}
}
