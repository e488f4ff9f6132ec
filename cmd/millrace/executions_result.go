package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) resultCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "result ID",
		Short: "Print what an execution returned, byte by byte",
		Long: `Print the value that a function returned, as JSON, however long it is, or write it to
a file with --file. Short values are in "executions get", too. Programs return nothing:
see "executions output". --output and --watch have no effect here.

A file is there with the whole value or not at all; one that was there before is
replaced.`,
		Example: `  millrace executions result 0198c0de-0000-7000-8000-000000000001 | jq .
  millrace executions result 0198c0de-0000-7000-8000-000000000001 --file result.json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				if file != "" && file != "-" {
					return resultToFile(cmd.Context(), api, ids[0], file)
				}
				_, err := api.Result(cmd.Context(), ids[0], c.out)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "write the value to this file instead of stdout")
	return cmd
}

// resultToFile writes a result beside the file and then gives it its name. What was
// there before stays when that fails.
func resultToFile(ctx context.Context, api *client.Client, id, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = api.Result(ctx, id, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
