package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) outputCommand() *cobra.Command {
	var stream string
	var attempt int
	cmd := &cobra.Command{
		Use:   "output ID",
		Short: "Print what an execution wrote, byte by byte",
		Long: `Print what an execution wrote so far: its stdout to stdout and its stderr to stderr,
or one of them to stdout with --stream. --output and --watch have no effect here.

Of each stream the first worker.max_output_bytes of an attempt are kept. When more was
written, a last line on stderr says how much.`,
		Example: `  millrace executions output 0198c0de-0000-7000-8000-000000000001
  millrace executions output 0198c0de-0000-7000-8000-000000000001 --stream stderr --attempt 1`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if stream != "" && stream != "stdout" && stream != "stderr" {
				return usagef("--stream: want stdout or stderr, not %q", stream)
			}
			if attempt < 0 {
				return usagef("--attempt: want 1 or more, not %d", attempt)
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			if err := c.copyOutput(cmd.Context(), api, ids[0], stream, attempt); err != nil {
				return err
			}
			return c.tellCut(cmd.Context(), api, ids[0], stream, attempt)
		},
	}
	cmd.Flags().StringVar(&stream, "stream", "", "print only stdout or stderr, to stdout")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "the attempt, counted from 1; the default is the last one")
	_ = cmd.RegisterFlagCompletionFunc("stream", fixed([]string{"stdout", "stderr"})) // the flag exists
	return cmd
}

func (c *cli) copyOutput(ctx context.Context, api *client.Client, id, stream string, attempt int) error {
	if stream != "" {
		_, err := api.Output(ctx, id, stream, attempt, c.out)
		return err
	}
	if _, err := api.Output(ctx, id, "stdout", attempt, c.out); err != nil {
		return err
	}
	_, err := api.Output(ctx, id, "stderr", attempt, c.err)
	return err
}

// tellCut says on stderr how much of the output of the last attempt was not kept. It is
// known once the execution has ended.
func (c *cli) tellCut(ctx context.Context, api *client.Client, id, stream string, attempt int) error {
	e, err := api.Get(ctx, id)
	if err != nil || e.Result == nil || attempt != 0 && attempt != e.Attempt {
		return err
	}
	for _, s := range []struct {
		name string
		said *client.Stream
	}{{"stdout", e.Result.Stdout}, {"stderr", e.Result.Stderr}} {
		if s.said != nil && s.said.Truncated && (stream == "" || stream == s.name) {
			_, err := fmt.Fprintf(c.err, "\nmillrace: %s is cut: %s were written, the first %s are kept\n",
				s.name, byteCount(s.said.Bytes), byteCount(s.said.KeptBytes))
			if err != nil {
				return err
			}
		}
	}
	return nil
}
