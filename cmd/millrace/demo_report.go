package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/client"
)

// The widths of the last column of the demonstration's table, in characters.
const (
	resultWidth      = 60 // off a terminal
	resultWidthLeast = 16
)

// firstLine returns the first line of a stream and how much more there is.
func firstLine(ctx context.Context, api *client.Client, e client.Execution, name string, kept *client.Stream) (string, error) {
	if kept == nil || kept.KeptBytes == 0 {
		return "", nil
	}
	text, err := readStream(ctx, api, e, name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(text) || bytes.ContainsRune(text, 0) {
		return fmt.Sprintf("binary, %s, kept byte by byte", byteCount(kept.Bytes)), nil
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if lines := strings.Count(rest, "\n"); lines > 0 {
		first += fmt.Sprintf(" ... and %d more lines (%s)", lines, byteCount(kept.Bytes))
	}
	return first, nil
}

// lastLine returns the last line that a program wrote to stderr, which is where
// most of them say what went wrong.
func lastLine(ctx context.Context, api *client.Client, e client.Execution) (string, error) {
	if kept := e.Result.Stderr; kept == nil || kept.KeptBytes == 0 {
		return "", nil
	}
	text, err := readStream(ctx, api, e, "stderr")
	trimmed := strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
	return trimmed[strings.LastIndexByte(trimmed, '\n')+1:], err
}

// reportShow writes the table and the summary.
func (c *cli) reportShow(s show, began time.Time) error {
	wide := resultWidth
	if c.width > 0 {
		widest := 0
		for _, p := range s.performances {
			widest = max(widest, utf8.RuneCountInString(p.title))
		}
		// What the other columns and the gaps between them take.
		wide = max(resultWidthLeast, c.width-widest-len("COMPLETED      ATTEMPT   131ms   "))
	}
	if err := table(c, c.out, c.showListing(s.performances, wide)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "\n%s\n%s\n", c.summary(s), timings(s, began))
	return err
}

func (c *cli) showListing(items []performance, wide int) listing[performance] {
	return listing[performance]{
		items: items,
		name:  func(p performance) string { return p.execution.ID },
		columns: []column[performance]{
			{title: "STATE", cell: func(p performance) string { return p.execution.State },
				paint: func(p performance) int { return stateColour(p.execution) }},
			{title: "WHAT", cell: func(p performance) string { return p.title }},
			{title: "ATTEMPT", cell: func(p performance) string { return fmt.Sprint(p.execution.Attempt) }},
			{title: "RAN", cell: func(p performance) string { return ran(c.now())(p.execution) }},
			{title: "RESULT", cell: func(p performance) string { return cut(p.result(), wide) }},
		},
	}
}

// result is the last column of the table.
func (p performance) result() string {
	switch {
	case p.err != nil:
		return "unexpected: " + explain(p.err)
	case !p.asExpected():
		return joined(fmt.Sprintf("unexpected (%s at attempt %d was)", p.state, p.attempt), p.output)
	}
	return p.output
}

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// summary says in one line how it went.
func (c *cli) summary(s show) string {
	byState := make(map[string]int)
	unexpected := 0
	for _, p := range s.performances {
		byState[p.execution.State]++
		if !p.asExpected() {
			unexpected++
		}
	}
	var parts []string
	for _, state := range client.States() {
		if n := byState[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := fmt.Sprintf("%d submitted: %s", len(s.performances), strings.Join(parts, ", "))
	if unexpected > 0 {
		return text + painted(fmt.Sprintf(". %d did not end as intended!", unexpected), c.colours(), red)
	}
	return text + painted(". All as intended.", c.colours(), green)
}

// timings says how long it took.
func timings(s show, began time.Time) string {
	return fmt.Sprintf("First result %s after its submission and %s after the start; all after %s.",
		span(s.first.Sub(s.began)), span(s.first.Sub(began)), span(s.ended.Sub(s.began)))
}
