package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

type queryFlags struct {
	file      string
	variables []string
	operation string
}

func (c *cli) queryCommand() *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{
		Use:   "query [GRAPHQL]",
		Short: "Ask the read models in GraphQL",
		Long: `Ask the read models in GraphQL: workflow instances and their tasks, executions, pods,
sagas, statistics, search. The answer is printed as JSON, or as YAML with -o yaml.

The value of a variable is JSON, or else a text: -v n=3, -v id=wf-1. Errors go to stderr;
what could be had is printed all the same, and the exit code is 1. The page at /graphql
of the API shows what can be asked for.`,
		Example: `  millrace query '{ getWorkflowInstances(limit: 5) { id name status } }'
  millrace query 'query($id: String) { getWorkflowInstance(id: $id) { status output } }' -v id=wf-1
  millrace query --file report.graphql --variable since=2026-11-01T00:00:00Z --operation Daily`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			q, err := c.readQuery(f, given)
			if err != nil {
				return err
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			answer, err := api.Query(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.printAnswer(api.URL(), answer)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "file with the query; - is this command's input")
	flags.StringArrayVarP(&f.variables, "variable", "v", nil, "value of a variable, name=value; repeat it for several")
	flags.StringVar(&f.operation, "operation", "", "which query to run, where the text has several")
	return cmd
}

func (c *cli) readQuery(f queryFlags, given []string) (client.Query, error) {
	q := client.Query{Operation: f.operation, Variables: map[string]json.RawMessage{}}
	switch {
	case f.file != "" && len(given) > 0:
		return q, usagef("give the query as an argument or in --file, not both")
	case f.file != "":
		text, err := c.readInput(f.file)
		if err != nil {
			return q, err
		}
		q.Text = string(text)
	case len(given) > 0:
		q.Text = given[0]
	}
	if strings.TrimSpace(q.Text) == "" {
		return q, usagef("there is no query: millrace query '{ getWorkflowInstances(limit: 5) { id status } }'")
	}
	for _, v := range f.variables {
		name, value, found := strings.Cut(v, "=")
		if name = strings.TrimPrefix(name, "$"); !found || name == "" {
			return q, usagef("--variable %q: want name=value", v)
		}
		if _, twice := q.Variables[name]; twice {
			return q, usagef("--variable %s is given more than once", name)
		}
		q.Variables[name] = json.RawMessage(value)
		if !json.Valid(q.Variables[name]) {
			text, err := json.Marshal(value)
			if err != nil {
				return q, usagef("--variable %s: %s", name, err)
			}
			q.Variables[name] = text
		}
	}
	return q, nil
}

// printAnswer prints the data to stdout and the errors to stderr.
func (c *cli) printAnswer(url string, answer client.QueryAnswer) error {
	if answer.Data != nil && string(answer.Data) != "null" {
		if err := c.document(c.out, answer.Data); err != nil {
			return err
		}
	}
	if len(answer.Errors) == 0 {
		return nil
	}
	for _, e := range answer.Errors {
		if err := printQueryError(c.err, e); err != nil {
			return err
		}
	}
	switch answer.Errors[0].Extensions.Code {
	case "validation_failed", "syntax_error", "invalid_variables":
		if _, err := fmt.Fprintf(c.err, "What can be asked for: %s/graphql\n", url); err != nil {
			return err
		}
	}
	return &exitError{code: exitFailure}
}

func printQueryError(w io.Writer, e client.QueryError) error {
	_, err := fmt.Fprintln(w, "millrace: "+oneLine(e.Error()))
	return err
}
