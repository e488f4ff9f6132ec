package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// sessionList is a command that lists what the servers carry out over a while, such as
// replays, by its states.
type sessionList[T any] struct {
	// noun is what they are called, in the plural; command begins the example.
	noun, command string
	// states are all that there are, example those of the example.
	states  []string
	example string
	fetch   func(api *client.Client, ctx context.Context, states []string, pageSize int) iter.Seq2[T, error]
	listing func(items []T, single bool) listing[T]
}

func listCommand[T any](c *cli, l sessionList[T]) *cobra.Command {
	var states []string
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List " + l.noun + ", the newest first",
		Long:    "List " + l.noun + ", the newest first, in all states unless --state is given.",
		Example: "  " + l.command + " list --state " + l.example,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for i, s := range states {
				if states[i] = strings.ToUpper(strings.TrimSpace(s)); !slices.Contains(l.states, states[i]) {
					return usagef("--state: %q is none of %s", s, strings.Join(l.states, ", "))
				}
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := firstOf(l.fetch(api, ctx, states, pageOf(limit)), limit)
					if err != nil {
						return err
					}
					return render(c, w, l.listing(items, false))
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only "+l.noun+" in this state (repeatable)")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("state", fixed(l.states)) // the flag exists
	return cmd
}

// pageOf is the size of the pages of a list that is limited so.
func pageOf(limit int) int {
	if limit > 0 {
		return min(limit, pageSize)
	}
	return pageSize
}

// firstOf collects at most limit items, or all if it is 0.
func firstOf[T any](all iter.Seq2[T, error], limit int) ([]T, error) {
	var items []T
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) == limit {
			break
		}
	}
	return items, nil
}

// followEvery is how often the servers are asked how far something is.
const followEvery = 500 * time.Millisecond

// following is how the progress of what the servers carry out is shown.
type following[T any] struct {
	// noun and id say what is followed, status is the command that shows it later.
	noun, id, status string
	fetch            func(context.Context) (T, error)
	goesOn           func(T) bool
	// progress is what is noted whenever it changes, unless it is empty; shown is what
	// nobody has to be told again.
	progress func(T) string
	shown    string
}

// follow notes the progress of x until it goes on no further. An interrupt ends the
// following, not x.
func follow[T any](ctx context.Context, c *cli, x T, f following[T]) (T, error) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for f.goesOn(x) {
		select {
		case <-ctx.Done():
			return x, errors.New("the " + f.noun + " goes on: see " + f.status)
		case <-ticker.C:
		}
		next, err := f.fetch(ctx)
		if err != nil {
			return x, fmt.Errorf("follow %s %s, which goes on: %w", f.noun, f.id, err)
		}
		x = next
		if text := f.progress(x); text != "" && text != f.shown {
			c.notef("%s", text)
			f.shown = text
		}
	}
	return x, nil
}

// facts are the lines that describe one thing to a person: a name and a value each.
type facts struct {
	tabs   *tabwriter.Writer
	colour bool
	// status is the name of the line that is painted, in code.
	status string
	code   int
}

// factsOf writes to w, with the value of the line called status in a colour.
func (c *cli) factsOf(w io.Writer, status string, code int) facts {
	return facts{tabs: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0), colour: c.colours(), status: status, code: code}
}

// line adds a line, unless its value is empty.
func (f facts) line(name, value string) {
	if value = oneLine(value); value == "" {
		return
	}
	if name == f.status {
		value = painted(value, f.colour, f.code)
	}
	_, _ = fmt.Fprintf(f.tabs, "%s:\t%s\n", oneLine(name), value) // end reports errors
}

// known adds a line, unless its value is empty, or "-" for one that is not known.
func (f facts) known(name, value string) {
	if value != "-" {
		f.line(name, value)
	}
}

// end writes the lines.
func (f facts) end() error { return f.tabs.Flush() }
