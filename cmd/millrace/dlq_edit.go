package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// letterEdits are the flags that say what to change in a record.
type letterEdits struct {
	value, valueFile, key string
	set, unset            []string
	force                 bool
	reason                string
}

func (c *cli) dlqEditCommand() *cobra.Command {
	var e letterEdits
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Change the record that a redrive sends",
		Long: `Change the value, the key or headers of the record of an OPEN dead letter. The letter
keeps the original; show tells what was changed, by whom and why. The record is held
against the schema of its event type, that of a trigger has to be a JSON object;
--force-schema overrides that.

The change is made to what a redrive would send now. If somebody else edits the letter
at the same time, one of the two is told.`,
		Example: `  millrace dlq edit 0198c0de-0000-7000-8000-000000000001 --value '{"price":7}' --reason 'no price'
  millrace dlq show ID -o json | jq '.value_json | .price = 7' | millrace dlq edit ID --value-file - --reason 'no price'
  millrace dlq edit ID --set-header tenant=blue --unset-header debug --reason 'wrong tenant'`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			changed := cmd.Flags().Changed
			if e.reason == "" {
				return usagef("--reason: say why the record is changed")
			}
			if changed("value") && changed("value-file") {
				return usagef("give either --value or --value-file")
			}
			if !changed("value") && !changed("value-file") && !changed("key") && len(e.set)+len(e.unset) == 0 {
				return usagef("say what to change: --value, --value-file, --key, --set-header or --unset-header")
			}
			edit := client.LetterEdit{ForceSchema: e.force, Reason: e.reason}
			if changed("value") {
				edit.Value = &client.Bytes{Text: &e.value}
			}
			if changed("key") {
				edit.Key = &client.Bytes{Text: &e.key}
			}
			if changed("value-file") {
				content, err := c.readValue(cmd.InOrStdin(), e.valueFile)
				if err != nil {
					return err
				}
				edit.Value = content
			}
			return c.eachLetter(ids, func(api *client.Client, id string) (client.DeadLetter, error) {
				now, err := api.DeadLetter(cmd.Context(), id)
				if err != nil {
					return client.DeadLetter{}, err
				}
				edit.AfterEdits = &now.Edits
				if len(e.set)+len(e.unset) > 0 {
					if edit.Headers, err = e.headers(now); err != nil {
						return client.DeadLetter{}, err
					}
				}
				return api.EditLetter(cmd.Context(), id, edit)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.value, "value", "", "the new value")
	flags.StringVar(&e.valueFile, "value-file", "", "a file with the new value; - is the standard input")
	flags.StringVar(&e.key, "key", "", "the new key")
	flags.StringArrayVar(&e.set, "set-header", nil, "give a header a value, name=value (repeatable)")
	flags.StringArrayVar(&e.unset, "unset-header", nil, "take all headers of this name away (repeatable)")
	flags.BoolVar(&e.force, "force-schema", false, "also when the record breaks its schema")
	flags.StringVar(&e.reason, "reason", "", "why, for the audit (required)")
	return cmd
}

// maxValueBytes bounds what is read as a value: more is a mistake.
const maxValueBytes = 64 << 20

func (c *cli) readValue(stdin io.Reader, name string) (*client.Bytes, error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // read only: nothing can be lost
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, maxValueBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read value: %w", err)
	case len(content) > maxValueBytes:
		return nil, fmt.Errorf("read value: is longer than %d bytes", maxValueBytes)
	case utf8.Valid(content):
		// What wrote the file ended its last line.
		text := strings.TrimSuffix(string(content), "\n")
		return &client.Bytes{Text: &text}, nil
	}
	return &client.Bytes{Base64: content}, nil
}

// headers are those that a redrive would send, changed as the flags say.
func (e letterEdits) headers(l client.DeadLetter) ([]client.DeadLetterHeader, error) {
	headers := l.Headers
	if l.Edited != nil {
		headers = l.Edited.Headers
	}
	headers = slices.DeleteFunc(slices.Clone(headers), func(h client.DeadLetterHeader) bool { return slices.Contains(e.unset, h.Name) })
	for _, pair := range e.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--set-header: want name=value, not %q", pair)
		}
		header := client.DeadLetterHeader{Name: name, Value: &client.Bytes{Text: &value}}
		at := slices.IndexFunc(headers, func(h client.DeadLetterHeader) bool { return h.Name == name })
		if at < 0 {
			headers = append(headers, header)
			continue
		}
		// In its place; others of that name go, since there is one value now.
		headers[at] = header
		rest := slices.DeleteFunc(headers[at+1:], func(h client.DeadLetterHeader) bool { return h.Name == name })
		headers = headers[:at+1+len(rest)]
	}
	if headers == nil {
		headers = []client.DeadLetterHeader{}
	}
	return headers, nil
}
