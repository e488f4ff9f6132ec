package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/client"
)

// outputs are the values of --output.
func outputs() []string { return []string{"table", "wide", "json", "yaml", "name"} }

// column is one column of a table of T.
type column[T any] struct {
	title string
	wide  bool // shown by -o wide only
	cell  func(T) string
	// paint returns the colour of a cell as an ANSI number; nil for none.
	paint func(T) int
}

// listing is a result that --output can print in every way.
type listing[T any] struct {
	items   []T
	columns []column[T]
	name    func(T) string
	// single makes JSON and YAML print the one item rather than a list.
	single bool
	// empty is what a person is told instead of an empty table.
	empty string
}

// render writes a listing as --output says.
func render[T any](c *cli, w io.Writer, l listing[T]) error {
	switch c.output {
	case "json", "yaml":
		var document any = l.items
		if l.items == nil {
			document = []T{}
		}
		if l.single {
			document = l.items[0]
		}
		return c.document(w, document)
	case "name":
		for _, item := range l.items {
			if _, err := fmt.Fprintln(w, l.name(item)); err != nil {
				return err
			}
		}
		return nil
	default:
		if len(l.items) == 0 && l.empty != "" {
			c.notef("%s", l.empty)
		}
		return table(c, w, l)
	}
}

// document writes a value as JSON or YAML.
func (c *cli) document(w io.Writer, value any) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if c.output == "yaml" {
		text, err := toYAML(out.Bytes())
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		out = *bytes.NewBuffer(text)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func table[T any](c *cli, w io.Writer, l listing[T]) error {
	colour := c.colours()
	tabs := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	row := func(cell func(column[T]) string) {
		var cells []string
		for _, col := range l.columns {
			if col.wide && c.output != "wide" {
				continue
			}
			cells = append(cells, cell(col))
		}
		// What is written here is buffered; Flush reports errors.
		_, _ = fmt.Fprintln(tabs, strings.Join(cells, "\t"))
	}
	row(func(col column[T]) string { return painted(col.title, colour && col.paint != nil, plain) })
	for _, item := range l.items {
		row(func(col column[T]) string {
			text := oneLine(col.cell(item))
			if !colour || col.paint == nil {
				return text
			}
			return painted(text, true, col.paint(item))
		})
	}
	return tabs.Flush()
}

// ANSI colours of text.
const (
	plain  = 39
	red    = 31
	green  = 32
	yellow = 33
	blue   = 34
)

// painted colours a text. Every cell of a coloured column gets codes of the same
// length, the title too, because tabwriter counts them as text.
func painted(text string, colour bool, code int) string {
	if !colour {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[39m", code, text)
}

// colours says whether stdout takes colours: a terminal, and nobody asked for none.
func (c *cli) colours() bool { return c.outTerminal && c.getenv("NO_COLOR") == "" }

// oneLine keeps a cell from breaking its table, or the terminal: control
// characters, which may come from anybody, are shown as question marks.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < 0x20, r >= 0x7f && r < 0xa0:
			return '?'
		}
		return r
	}, text)
}

// withAPI calls use with a client of the API.
func (c *cli) withAPI(use func(*client.Client) error) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	return use(api)
}

// showing is what a command does that shows the one thing whose id it is given.
func (c *cli) showing(
	show func(ctx context.Context, api *client.Client, id string, w io.Writer) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, ids []string) error {
		return c.withAPI(func(api *client.Client) error {
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				return show(ctx, api, ids[0], w)
			})
		})
	}
}

// repeat runs show once, or with --watch again and again until interrupted. Each
// round is collected and then written at once, so that a terminal does not
// flicker. The first fault ends it.
func (c *cli) repeat(ctx context.Context, show func(ctx context.Context, w io.Writer) error) error {
	if c.watch == 0 {
		return show(ctx, c.out)
	}
	ticker := time.NewTicker(c.watch)
	defer ticker.Stop()
	for first := true; ; first = false {
		var round bytes.Buffer
		if c.outTerminal {
			round.WriteString("\x1b[H\x1b[2J") // home, clear
		} else if !first {
			round.WriteByte('\n')
		}
		err := show(ctx, &round)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := c.out.Write(round.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// toYAML turns JSON into YAML and keeps the order of members and the digits of
// numbers.
func toYAML(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = encoder.Encode(node)
	return out.Bytes(), err
}

func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch x := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if x == '{' {
			node.Kind = yaml.MappingNode
		}
		for decoder.More() { // for a mapping this reads keys and values in turn
			child, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := decoder.Token() // the closing bracket
		return node, err
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: x.String()}, nil
	default:
		node := &yaml.Node{}
		return node, node.Encode(x)
	}
}

// age says how long ago a time was, in its two largest units: 5s, 3m20s, 2d4h.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return span(max(now.Sub(then), 0))
}

// span writes a duration in its two largest units, the second one only if it is
// not zero.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.Replace(fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds()), ".0s", "s", 1)
	case d < time.Minute:
		return units(d, time.Second, "s", 1, "")
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "m")
	default:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 && smallName != "" {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}
