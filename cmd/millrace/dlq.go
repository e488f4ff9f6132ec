package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dlq",
		Aliases: []string{"dead-letters"},
		Short:   "Look at dead letters, edit and redrive them, discard and archive them",
		Long: `Dead letters are the records that a consumer gave up on. Look at what went wrong, mend
it or the records, and give them to their consumer again; or discard what is not
needed. What is settled is archived by and by, and can be restored for a time.`,
		Example: `  millrace dlq groups
  millrace dlq list --consumer billing
  millrace dlq redrive --consumer billing --dry-run
  millrace dlq discard 0198c0de-0000-7000-8000-000000000001 --reason 'test data'`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.dlqListCommand(), c.dlqGroupsCommand(), c.dlqShowCommand(), c.dlqLanesCommand(), c.dlqEditCommand(), c.dlqRedriveCommand(),
		c.dlqRedrivesCommand(), c.dlqDiscardCommand(), c.dlqArchiveCommand(), c.dlqRestoreCommand(), c.dlqDeleteCommand())
	return cmd
}

// letterStatuses are the statuses of dead letters.
func letterStatuses() []string {
	return []string{"OPEN", "REDRIVEN", "RESOLVED", "DISCARDED", "DELETED"}
}

// letterFlags are the flags that select dead letters.
type letterFlags struct {
	filter        client.DeadLetterFilter
	statuses      []string
	after, before string
	archived      bool
}

// addTo adds the flags to a command; the status only where one can choose.
func (f *letterFlags) addTo(cmd *cobra.Command, status bool) {
	flags := cmd.Flags()
	if status {
		flags.StringSliceVar(&f.statuses, "status", []string{"OPEN"}, "only letters in this status (repeatable), or any")
		flags.BoolVar(&f.archived, "archived", false, "letters that are archived, in place of those that are not")
		_ = cmd.RegisterFlagCompletionFunc("status", fixed(append(letterStatuses(), "any"))) // the flag exists
	}
	flags.StringVar(&f.filter.Topic, "topic", "", "only records of this topic, by its name at the broker")
	flags.StringVar(&f.filter.Consumer, "consumer", "", "only letters of this consumer")
	flags.StringVar(&f.filter.Type, "type", "", "only events of this type")
	flags.StringVar(&f.filter.Class, "class", "", "only faults of this class: message or handler")
	flags.StringVar(&f.filter.Fingerprint, "fingerprint", "", "only this group, see millrace dlq groups")
	flags.StringVar(&f.filter.Key, "key", "", "only records with this key")
	flags.StringVar(&f.after, "after", "", "only what failed last after this time (RFC 3339), or this long ago (2h)")
	flags.StringVar(&f.before, "before", "", "only what failed last before this time (RFC 3339), or this long ago (2h)")
	_ = cmd.RegisterFlagCompletionFunc("class", fixed([]string{"message", "handler"})) // the flag exists
}

// addParking adds the flag that selects heads of lanes, which is for looking only.
func (f *letterFlags) addParking(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.filter.Parking, "parking", false, "only letters that later events of their key wait for")
}

// finish checks what was given and completes the filter.
func (f *letterFlags) finish(now time.Time) error {
	for _, text := range f.statuses {
		status := strings.ToUpper(strings.TrimSpace(text))
		if status == "ANY" {
			f.filter.Statuses = nil
			break
		}
		if !slices.Contains(letterStatuses(), status) {
			return usagef("--status: %q is none of %s or any", text, strings.Join(letterStatuses(), ", "))
		}
		f.filter.Statuses = append(f.filter.Statuses, status)
	}
	if f.archived {
		f.filter.Archived = "only"
	}
	var err error
	if f.filter.FailedAfter, err = moment("--after", f.after, now); err != nil {
		return err
	}
	f.filter.FailedBefore, err = moment("--before", f.before, now)
	return err
}

// given says whether the flags select anything less than all.
func (f *letterFlags) given() bool {
	x := f.filter
	return f.after+f.before+x.Topic+x.Consumer+x.Type+x.Class+x.Fingerprint+x.Key != ""
}

// moment reads a time, or how long ago it was.
func moment(flag, text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no time was given
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		at := now.Add(-ago)
		return &at, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usagef("%s: want a time such as 2026-11-21T10:00:00Z or a duration such as 2h, not %q", flag, text)
	}
	return &at, nil
}

func (c *cli) dlqListCommand() *cobra.Command {
	var chosen letterFlags
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List dead letters, the last failure first",
		Long:    `List dead letters, the last failure first. Without --status, those that are OPEN.`,
		Example: `  millrace dlq list --consumer billing --after 2h
  millrace dlq list --status any --class message -o wide
  millrace dlq list --fingerprint 5be2c3d1a09f7e64 -o name | xargs millrace dlq discard --reason 'test data'`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosen.finish(c.now()); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				size := pageSize
				if limit > 0 {
					size = min(limit, pageSize)
				}
				var items []client.DeadLetter
				for l, err := range api.DeadLetters(ctx, chosen.filter, size) {
					if err != nil {
						return err
					}
					if items = append(items, l); len(items) == limit {
						break
					}
				}
				return render(c, w, c.letterListing(items, false))
			})
		},
	}
	chosen.addTo(cmd, true)
	chosen.addParking(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	return cmd
}

// letterListing is how dead letters are printed.
func (c *cli) letterListing(items []client.DeadLetter, single bool) listing[client.DeadLetter] {
	now, wide := c.now(), c.output == "wide"
	return listing[client.DeadLetter]{
		items: items, single: single,
		name:  func(l client.DeadLetter) string { return l.ID },
		empty: "no dead letters",
		columns: []column[client.DeadLetter]{
			{title: "ID", cell: func(l client.DeadLetter) string { return l.ID }},
			{title: "STATUS", cell: func(l client.DeadLetter) string { return l.Status }, paint: letterColour},
			{title: "CONSUMER", cell: func(l client.DeadLetter) string { return l.Consumer }},
			{title: "RECORD", cell: recordText},
			{title: "CLASS", cell: func(l client.DeadLetter) string { return l.Class }},
			{title: "EDITS", wide: true, cell: func(l client.DeadLetter) string { return fmt.Sprint(l.Edits) }},
			{title: "REDRIVES", cell: func(l client.DeadLetter) string { return fmt.Sprint(l.ReplayCount) }},
			{title: "PARKED", cell: parkedText},
			{title: "AGE", cell: func(l client.DeadLetter) string { return age(now, l.LastFailedAt) }},
			{title: "REASON", cell: func(l client.DeadLetter) string { return shorten(l.Reason, wide) }},
			{title: "KEY", wide: true, cell: func(l client.DeadLetter) string { return bytesText(l.Key) }},
			{title: "NEXT TRY", wide: true, cell: func(l client.DeadLetter) string {
				if l.NextRetry == nil {
					return "-"
				}
				return l.NextRetry.At.UTC().Format(time.RFC3339)
			}},
			{title: "TYPE", wide: true, cell: func(l client.DeadLetter) string { return dash(l.EventType) }},
			{title: "FINGERPRINT", wide: true, cell: func(l client.DeadLetter) string { return l.Fingerprint }},
		},
	}
}

func recordText(l client.DeadLetter) string {
	return fmt.Sprintf("%s/%d@%d", l.Topic, l.Partition, l.Offset)
}

func letterColour(l client.DeadLetter) int {
	switch l.Status {
	case "OPEN":
		return red
	case "REDRIVEN", "RESOLVED":
		return green
	default:
		return plain
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// bytesText shows bytes for reading.
func bytesText(b *client.Bytes) string {
	switch {
	case b == nil:
		return "-"
	case b.Text != nil:
		return *b.Text
	default:
		return "base64:" + base64.StdEncoding.EncodeToString(b.Base64)
	}
}

func (c *cli) dlqGroupsCommand() *cobra.Command {
	var chosen letterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Count dead letters by what went wrong",
		Long: `Count dead letters by what went wrong, the largest group first. Errors that differ in
ids and numbers only are one group.`,
		Example: `  millrace dlq groups --after 24h
  millrace dlq redrive --fingerprint 5be2c3d1a09f7e64`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosen.finish(c.now()); err != nil {
				return err
			}
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				groups, err := api.DeadLetterGroups(ctx, chosen.filter, limit)
				if err != nil {
					return err
				}
				return render(c, w, c.groupListing(groups))
			})
		},
	}
	chosen.addTo(cmd, true)
	chosen.addParking(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "how many groups to show at most")
	return cmd
}

func (c *cli) groupListing(groups []client.DeadLetterGroup) listing[client.DeadLetterGroup] {
	now, wide := c.now(), c.output == "wide"
	return listing[client.DeadLetterGroup]{
		items: groups,
		name:  func(g client.DeadLetterGroup) string { return g.Fingerprint },
		empty: "no dead letters",
		columns: []column[client.DeadLetterGroup]{
			{title: "FINGERPRINT", cell: func(g client.DeadLetterGroup) string { return g.Fingerprint }},
			{title: "COUNT", cell: func(g client.DeadLetterGroup) string { return fmt.Sprint(g.Count) }},
			{title: "CONSUMER", cell: func(g client.DeadLetterGroup) string { return g.Consumer }},
			{title: "CLASS", cell: func(g client.DeadLetterGroup) string { return g.Class }},
			{title: "FIRST", cell: func(g client.DeadLetterGroup) string { return age(now, g.FirstSeen) }},
			{title: "LAST", cell: func(g client.DeadLetterGroup) string { return age(now, g.LastSeen) }},
			{title: "REASON", cell: func(g client.DeadLetterGroup) string { return shorten(g.Reason, wide) }},
		},
	}
}
