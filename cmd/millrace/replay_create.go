package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// replayFlags are the flags of a new replay.
type replayFlags struct {
	request       client.NewReplay
	filter        client.ReplayFilter
	after, before string
	offsets       []string
	kafka         bool
	key           string
	wait          bool
}

func (f *replayFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.request.Target.Consumer, "consumer", "", "the only consumer that is to act, on its own topic")
	flags.StringVar(&f.request.Target.Topic, "to", "", "the topic to publish to, by its name at the broker: all of its consumers that opt in act")
	flags.StringSliceVar(&f.filter.Topics, "topic", nil, "replay events of this topic (repeatable; default the topic of the target)")
	flags.StringSliceVar(&f.filter.Types, "type", nil, "only events of this type, or that begin with what is before a final * (repeatable)")
	flags.StringSliceVar(&f.filter.Sources, "source", nil, "only events of this CloudEvents source (repeatable)")
	flags.StringSliceVar(&f.filter.Subjects, "subject", nil, "only events about this, such as an execution's id (repeatable)")
	flags.StringSliceVar(&f.filter.Keys, "key", nil, "only records with this key (repeatable)")
	flags.StringVar(&f.after, "after", "", "only events of this time (RFC 3339), or this long ago (24h), and later")
	flags.StringVar(&f.before, "before", "", "only events before this time (RFC 3339), or this long ago (2h)")
	flags.BoolVar(&f.kafka, "from-kafka", false, "read the topics themselves rather than the event log; times are those of records then")
	flags.StringSliceVar(&f.offsets, "offsets", nil, "only this part of a partition, as TOPIC/PARTITION=FROM..TO, or FROM.. (repeatable; needs --from-kafka)")
	flags.Float64Var(&f.request.Rate, "rate", 0, "publish at most so many per second (default as fast as it goes)")
	flags.Int64Var(&f.request.Max, "max", 0, "end when so many are published (default all)")
	flags.BoolVar(&f.request.DryRun, "dry-run", false, "say what would happen, and do nothing")
	flags.BoolVar(&f.request.Force, "force", false, "also to a topic that carries work, or to a consumer that drops replays; needs --reason")
	flags.StringVar(&f.key, "idempotency-key", "", "repeating the command under the same key makes no second replay")
	flags.BoolVar(&f.wait, "wait", false, "follow the replay until it is done, stopped, paused or cancelled")
	flags.StringVar(&f.request.Reason, "reason", "", "why, for the audit")
}

// finish checks what was given and completes the request.
func (f *replayFlags) finish(now time.Time) error {
	r := &f.request
	switch {
	case (r.Target.Topic == "") == (r.Target.Consumer == ""):
		return usagef("millrace replay create: say to whom: --consumer or --to")
	case r.Rate < 0:
		return usagef("--rate: want events per second, not %g", r.Rate)
	case r.Max < 0:
		return usagef("--max: want 1 or more, not %d", r.Max)
	case r.Force && r.Reason == "":
		return usagef("--force: needs --reason: it is kept for those who ask later")
	case len(f.offsets) > 0 && !f.kafka:
		return usagef("--offsets: needs --from-kafka: the event log is chosen from by time")
	}
	if f.kafka {
		r.Source = "kafka"
	}
	var err error
	if f.filter.After, err = moment("--after", f.after, now); err != nil {
		return err
	}
	if f.filter.Before, err = moment("--before", f.before, now); err != nil {
		return err
	}
	for _, text := range f.offsets {
		s, err := parseStretch(text)
		if err != nil {
			return err
		}
		f.filter.Offsets = append(f.filter.Offsets, s)
	}
	r.Filter = &f.filter
	return nil
}

var stretchForm = regexp.MustCompile(`^([^/=]+)/(\d{1,9})=(\d{1,18})\.\.(\d{0,18})$`)

// parseStretch reads TOPIC/PARTITION=FROM..TO.
func parseStretch(text string) (client.ReplayStretch, error) {
	parts := stretchForm.FindStringSubmatch(text)
	if parts == nil {
		return client.ReplayStretch{}, usagef("--offsets: want TOPIC/PARTITION=FROM..TO such as execution_events/0=120..240, not %q", text)
	}
	// The form leaves only numbers that fit.
	partition, _ := strconv.ParseInt(parts[2], 10, 32)
	from, _ := strconv.ParseInt(parts[3], 10, 64)
	s := client.ReplayStretch{Topic: parts[1], Partition: int32(partition), From: from}
	if parts[4] != "" {
		s.To, _ = strconv.ParseInt(parts[4], 10, 64)
	}
	return s, nil
}

func (c *cli) replayCreateCommand() *cobra.Command {
	var chosen replayFlags
	var yes bool
	cmd := &cobra.Command{
		Use:     "create",
		Aliases: []string{"start"},
		Short:   "Begin a replay",
		Long: `Begin a replay of what the flags choose: of the event log, or of topics with --from-kafka.
Each record is published with its key, headers and value as they were, and with the id of
the replay, to one consumer (--consumer) or a topic (--to). Only consumers that opt in
act; --dry-run says which do, how many events there are, and shows the first of them.

The servers carry it out: the command prints the replay and ends, or follows it with
--wait. What is published after the command was given is no part of it. A large replay
has to be confirmed with --yes, or bounded with --max. Exit code 1 says that it was
refused, or did not get done.`,
		Example: `  millrace replay create --consumer audit --after 24h --dry-run
  millrace replay create --consumer audit --type 'millrace.execution.*' --after 24h --rate 500 --wait
  millrace replay create --to my_topic --topic execution_events --subject 0198c0de-0000-7000-8000-000000000001
  millrace replay create --consumer audit --from-kafka --offsets execution_events/0=120..240`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosen.finish(c.now()); err != nil {
				return err
			}
			chosen.request.Confirm = yes
			return c.withAPI(func(api *client.Client) error {
				if chosen.request.DryRun {
					p, err := api.PlanReplay(cmd.Context(), chosen.request)
					if err != nil {
						return err
					}
					return c.printPlan(c.out, p)
				}
				return c.beginReplay(cmd.Context(), api, chosen)
			})
		},
	}
	chosen.addTo(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "it may be large")
	return cmd
}

// beginReplay makes a replay, and follows it if asked to.
func (c *cli) beginReplay(ctx context.Context, api *client.Client, f replayFlags) error {
	r, err := api.CreateReplay(ctx, f.request, f.key)
	if err != nil {
		return err
	}
	if !f.wait {
		if c.output == "table" || c.output == "wide" {
			c.notef("follow it with: millrace replay status %s --watch", r.ID)
		}
		return render(c, c.out, c.replayListing([]client.Replay{r}, true))
	}
	if r, err = c.followReplay(ctx, api, r); err != nil {
		return err
	}
	if err := render(c, c.out, c.replayListing([]client.Replay{r}, true)); err != nil {
		return err
	}
	if r.State != "DONE" || r.Refused > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

// followReplay notes the progress of a replay until it goes on no further.
func (c *cli) followReplay(ctx context.Context, api *client.Client, r client.Replay) (client.Replay, error) {
	c.notef("replay %s to %s", r.ID, targetText(r.Target))
	return follow(ctx, c, r, following[client.Replay]{
		noun: "replay", id: r.ID, status: "millrace replay status " + r.ID,
		fetch:    func(ctx context.Context) (client.Replay, error) { return api.Replay(ctx, r.ID) },
		goesOn:   client.Replay.Goes,
		progress: func(r client.Replay) string { return strings.TrimSpace(replayProgress(r) + "  " + r.Note) },
	})
}

// printPlan prints what a replay would do, and returns an error if it would be
// refused.
func (c *cli) printPlan(w io.Writer, p client.ReplayPlan) error {
	var err error
	switch c.output {
	case "json", "yaml":
		err = c.document(w, p)
	case "name":
		for _, s := range p.Sample {
			if err == nil {
				_, err = fmt.Fprintln(w, s.EventID)
			}
		}
	default:
		err = c.describePlan(w, p)
	}
	if err == nil && len(p.Refused) > 0 {
		return &exitError{code: exitFailure}
	}
	return err
}

func (c *cli) describePlan(w io.Writer, p client.ReplayPlan) error {
	tabs := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		_, _ = fmt.Fprintf(tabs, "%s:\t%s\n", name, oneLine(value)) // Flush reports errors
	}
	line("Events", matchedText(p))
	line("Chosen", replayFilterText(p.Filter))
	line("Target", targetText(p.Target))
	for _, x := range p.Consumers {
		line("Consumer", strings.Replace(consumerText(x), " acts", " would act", 1))
	}
	for _, n := range p.Notices {
		line("Notice", n)
	}
	for _, o := range p.Refused {
		text := o.Message
		if o.Forcible {
			text += " (--force overrides it)"
		}
		line("Refused", text)
	}
	if err := tabs.Flush(); err != nil || len(p.Sample) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return render(c, w, listing[client.ReplaySample]{
		items: p.Sample,
		name:  func(s client.ReplaySample) string { return s.EventID },
		columns: []column[client.ReplaySample]{
			{title: "TIME", cell: func(s client.ReplaySample) string { return s.Time.UTC().Format("2006-01-02T15:04:05.000Z") }},
			{title: "RECORD", cell: func(s client.ReplaySample) string { return fmt.Sprintf("%s/%d@%d", s.Topic, s.Partition, s.Offset) }},
			{title: "TYPE", cell: func(s client.ReplaySample) string { return dash(s.Type) }},
			{title: "KEY", cell: func(s client.ReplaySample) string { return bytesText(s.Key) }},
			{title: "BYTES", cell: func(s client.ReplaySample) string { return fmt.Sprint(s.Bytes) }},
			{title: "EVENT", wide: true, cell: func(s client.ReplaySample) string { return dash(s.EventID) }},
		},
	})
}

func matchedText(p client.ReplayPlan) string {
	switch {
	case p.AtLeast:
		return fmt.Sprintf("more than %d", p.Matched)
	case p.AtMost:
		return fmt.Sprintf("at most %d", p.Matched)
	}
	return fmt.Sprint(p.Matched)
}

// replayControl is one of the commands that change the state of a replay.
func (c *cli) replayControl(verb, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Long:    short + ".",
		Example: "  millrace replay " + verb + " 0198c0de-0000-7000-8000-000000000001",
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.withAPI(func(api *client.Client) error {
				r, err := api.ControlReplay(cmd.Context(), ids[0], verb, reason)
				if err != nil {
					return err
				}
				return render(c, c.out, c.replayListing([]client.Replay{r}, true))
			})
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) replayRateCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "rate ID EVENTS_PER_SECOND",
		Short: "Change how fast a replay goes",
		Long: `Change how fast a replay goes, from now on: at most so many events per second, or 0 for
as fast as it goes.`,
		Example: `  millrace replay rate 0198c0de-0000-7000-8000-000000000001 50`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, given []string) error {
			rate, err := strconv.ParseFloat(given[1], 64)
			if err != nil || !(rate >= 0) {
				return usagef("want events per second, or 0 for as fast as it goes, not %q", given[1])
			}
			return c.withAPI(func(api *client.Client) error {
				r, err := api.SetReplayRate(cmd.Context(), given[0], rate, reason)
				if err != nil {
					return err
				}
				return render(c, c.out, c.replayListing([]client.Replay{r}, true))
			})
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}
