package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) triggersStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status ID",
		Short: "Show how a trigger is doing",
		Long: `Show how a trigger is doing: each member and partition, whether it receives, else why
not, since when, at which message, and when it is tried again. -o wide shows the settings
in use too, with where each comes from.`,
		Example: `  millrace triggers status orders
  millrace triggers status orders -o wide --watch`,
		Args: args(cobra.ExactArgs(1)),
		RunE: c.showing(func(ctx context.Context, api *client.Client, id string, w io.Writer) error {
			s, err := api.TriggerStatus(ctx, id)
			if err != nil {
				return err
			}
			return c.printTriggerStatus(w, s)
		}),
	}
}

// printTriggerStatus prints the whole as a document, and tables for people.
func (c *cli) printTriggerStatus(w io.Writer, s client.TriggerStatus) error {
	switch c.output {
	case "json", "yaml":
		return c.document(w, s)
	case "name":
		_, err := fmt.Fprintln(w, s.ID)
		return err
	}
	if err := c.triggerHeadline(w, s); err != nil {
		return err
	}
	if len(s.Members) > 0 {
		if err := below(w, func() error { return table(c, w, c.memberListing(s.Members)) }); err != nil {
			return err
		}
	}
	if len(s.Partitions) > 0 {
		if err := below(w, func() error { return table(c, w, c.triggerPartitions(s.Partitions)) }); err != nil {
			return err
		}
	}
	if c.output == "wide" && len(s.Settings) > 0 {
		return below(w, func() error { return table(c, w, settingListing(s.Settings)) })
	}
	return nil
}

// below writes a part after an empty line.
func below(w io.Writer, write func() error) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return write()
}

// triggerHeadline says in a few lines how a trigger is doing, and what to do.
func (c *cli) triggerHeadline(w io.Writer, s client.TriggerStatus) error {
	now := c.now()
	line := fmt.Sprintf("%s (%s, revision %d): %s", s.ID, s.Type, s.Revision, painted(dash(s.State), c.colours(), triggerColour(s.State)))
	if s.Since != nil {
		line += " for " + age(now, *s.Since)
	}
	if s.Lag != nil {
		line += fmt.Sprintf(", %d waiting", *s.Lag)
	}
	if s.NextAt != nil {
		line += ", next at " + s.NextAt.UTC().Format(time.RFC3339)
	}
	if s.LastAt != nil {
		line += ", last at " + s.LastAt.UTC().Format(time.RFC3339)
	}
	lines := []string{line}
	if s.Cause != nil {
		lines = append(lines, "  "+oneLine(s.Cause.Code+": "+s.Cause.Message))
		if s.Cause.Hint != "" {
			lines = append(lines, "  "+oneLine(s.Cause.Hint))
		}
		if s.NextTry != nil {
			lines = append(lines, "  next try in "+nextText(now, s.NextTry))
		}
	}
	for _, n := range s.Notes {
		lines = append(lines, "  warning: "+oneLine(n.Code+": "+n.Message))
		if n.Hint != "" {
			lines = append(lines, "    "+oneLine(n.Hint))
		}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) memberListing(items []client.TriggerMember) listing[client.TriggerMember] {
	type member = client.TriggerMember
	now, wide := c.now(), c.output == "wide"
	return listing[member]{
		items: items,
		columns: []column[member]{
			{title: "MEMBER", cell: func(m member) string { return fmt.Sprint(m.Member) }},
			{title: "STATE", cell: func(m member) string { return m.State }, paint: func(m member) int { return triggerColour(m.State) }},
			{title: "FOR", cell: func(m member) string { return ageOrDash(now, m.Since) }},
			{title: "OWNER", cell: func(m member) string { return dash(m.Owner) }},
			{title: "TRIES", cell: func(m member) string { return fmt.Sprint(m.Attempts) }},
			{title: "NEXT", cell: func(m member) string { return nextText(now, m.NextTry) }},
			{title: "CAUSE", cell: func(m member) string { return triggerCause(m.Cause, wide) }},
			{title: "REVISION", wide: true, cell: func(m member) string { return fmt.Sprint(m.Revision) }},
			{title: "REPORTED", wide: true, cell: func(m member) string { return ageOrDash(now, m.ReportedAt) }},
		},
	}
}

func (c *cli) triggerPartitions(items []client.TriggerPartition) listing[client.TriggerPartition] {
	type partition = client.TriggerPartition
	now, wide := c.now(), c.output == "wide"
	return listing[partition]{
		items: items,
		columns: []column[partition]{
			{title: "TOPIC", cell: func(p partition) string { return p.Topic }},
			{title: "PARTITION", cell: func(p partition) string { return fmt.Sprint(p.Partition) }},
			{title: "STATE", cell: func(p partition) string { return p.State }, paint: func(p partition) int { return triggerColour(p.State) }},
			{title: "OFFSET", cell: func(p partition) string { return fmt.Sprint(p.Offset) }},
			{title: "COMMITTED", cell: func(p partition) string { return offsetText(p.Committed) }},
			{title: "END", cell: func(p partition) string { return offsetText(p.End) }},
			{title: "LAG", cell: func(p partition) string { return number(p.Lag) }},
			{title: "FOR", cell: func(p partition) string { return ageOrDash(now, p.Since) }},
			{title: "TRIES", cell: func(p partition) string { return fmt.Sprint(p.Attempts) }},
			{title: "NEXT", cell: func(p partition) string { return nextText(now, p.NextTry) }},
			{title: "KEY", cell: func(p partition) string { return shorten(triggerKey(p.Key), wide) }},
			{title: "CAUSE", cell: func(p partition) string { return triggerCause(p.Cause, wide) }},
			{title: "MEMBER", wide: true, cell: func(p partition) string { return fmt.Sprint(p.Member) }},
		},
	}
}

// offsetText shows an offset of which a negative one stands for none.
func offsetText(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func triggerKey(key []byte) string {
	switch {
	case key == nil:
		return "-"
	case utf8.Valid(key):
		return string(key)
	default:
		return "base64:" + base64.StdEncoding.EncodeToString(key)
	}
}

func settingListing(items []client.TriggerSetting) listing[client.TriggerSetting] {
	type setting = client.TriggerSetting
	return listing[setting]{
		items: items,
		columns: []column[setting]{
			{title: "SETTING", cell: func(s setting) string { return s.Name }},
			{title: "VALUE", cell: func(s setting) string { return string(s.Value) }},
			{title: "FROM", cell: func(s setting) string { return s.Source }},
		},
	}
}
