package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say why an execution waits, and what would release it",
		Long: `Say why an execution stands where it stands: what it waits for, since when, what is
ahead of it, and what would release it.`,
		Example: `  millrace explain 0198c0de-0000-7000-8000-000000000001
  millrace explain 0198c0de-0000-7000-8000-000000000001 --watch
  millrace explain 0198c0de-0000-7000-8000-000000000001 -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				x, err := api.Explain(ctx, ids[0])
				if err != nil {
					return err
				}
				switch c.output {
				case "json", "yaml":
					return c.document(w, x)
				case "name":
					_, err = fmt.Fprintln(w, x.ExecutionID)
					return err
				default:
					return printExplanation(w, x)
				}
			})
		},
	}
}

// printExplanation writes the sentence, then what would release each reason. The
// first reason is in the sentence already.
func printExplanation(w io.Writer, x client.Explanation) error {
	_, err := fmt.Fprintln(w, oneLine(x.Summary))
	for i, wait := range x.Waits {
		if i > 0 || x.State == "RUNNING" {
			if _, err := fmt.Fprintf(w, "Also, %s.\n", oneLine(wait.Message)); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "  What would release it: %s.\n", oneLine(wait.Release)); err != nil {
			return err
		}
	}
	if x.Outlook != "" {
		_, err = fmt.Fprintln(w, oneLine(x.Outlook))
	}
	return err
}
