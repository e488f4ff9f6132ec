package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// holdFlags say what a hold is about.
type holdFlags struct {
	all                         bool
	class, user, tenant, reason string
}

func (f *holdFlags) add(cmd *cobra.Command, verb string) {
	cmd.Flags().BoolVar(&f.all, "all", false, verb+" everything")
	cmd.Flags().StringVar(&f.class, "class", "", verb+" the executions of this resource class")
	cmd.Flags().StringVar(&f.user, "user", "", verb+" the executions of this user")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "the tenant of the user, unless it is the default one")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for those who ask later")
}

// target is the one thing that the flags name.
func (f *holdFlags) target() (client.HoldTarget, error) {
	var targets []client.HoldTarget
	if f.all {
		targets = append(targets, client.HoldTarget{Scope: "all"})
	}
	if f.class != "" {
		targets = append(targets, client.HoldTarget{Scope: "class", ResourceClass: f.class})
	}
	if f.user != "" {
		targets = append(targets, client.HoldTarget{Scope: "user", User: f.user, Tenant: f.tenant})
	}
	switch {
	case len(targets) != 1:
		return client.HoldTarget{}, usagef("want one of --all, --class and --user")
	case f.tenant != "" && f.user == "":
		return client.HoldTarget{}, usagef("--tenant goes with --user")
	}
	return targets[0], nil
}

func (c *cli) holdCommand() *cobra.Command {
	var flags holdFlags
	cmd := &cobra.Command{
		Use:   "hold (--all | --class NAME | --user NAME)",
		Short: "Keep what is queued from being admitted",
		Long: `Keep what is queued from being admitted until it is resumed: everything, the executions
of a resource class, or those of a user. When the command has ended nothing more is
admitted; what was admitted before goes on. New work is accepted and queued, and time
limits keep counting. Holding what is on hold already changes nothing.`,
		Example: `  millrace queue hold --class gpu --reason 'driver update until noon'
  millrace queue hold --user ada --tenant acme --reason 'runaway script'
  millrace queue hold --all`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := flags.target()
			if err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				h, err := api.Hold(cmd.Context(), target, flags.reason)
				if err != nil {
					return err
				}
				return render(c, c.out, c.holdListing([]client.Hold{h}, true))
			})
		},
	}
	flags.add(cmd, "hold")
	return cmd
}

func (c *cli) resumeCommand() *cobra.Command {
	var flags holdFlags
	cmd := &cobra.Command{
		Use:   "resume (--all | --class NAME | --user NAME)",
		Short: "Let what was on hold be admitted again",
		Long: `Lift a hold. Each hold is lifted as it was placed: --all lifts the hold of everything,
and not those of classes and users. Where there is no such hold nothing changes.`,
		Example: `  millrace queue resume --class gpu
  millrace queue resume --user ada --tenant acme --reason 'script fixed'`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := flags.target()
			if err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				was, err := api.Resume(cmd.Context(), target, flags.reason)
				if err != nil {
					return err
				}
				if was == nil {
					c.notef("it was not on hold")
					return nil
				}
				return render(c, c.out, c.holdListing([]client.Hold{*was}, true))
			})
		},
	}
	flags.add(cmd, "resume")
	return cmd
}

func (c *cli) holdsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "holds",
		Short: "List what is on hold",
		Long:  `List what is on hold, who asked for it, since when, and why.`,
		Example: `  millrace queue holds
  millrace queue holds -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					list, err := api.Holds(ctx)
					if err != nil {
						return err
					}
					return render(c, w, c.holdListing(list, false))
				})
			})
		},
	}
}

func (c *cli) holdListing(items []client.Hold, single bool) listing[client.Hold] {
	now := c.now()
	return listing[client.Hold]{
		items: items, single: single,
		name:  holdName,
		empty: "nothing is on hold",
		columns: []column[client.Hold]{
			{title: "HOLD", cell: holdName},
			{title: "SINCE", cell: func(h client.Hold) string { return age(now, h.Since) }},
			{title: "BY", cell: func(h client.Hold) string { return dash(h.By) }},
			{title: "REASON", cell: func(h client.Hold) string { return dash(h.Reason) }},
		},
	}
}

// holdName names what is on hold in a word.
func holdName(h client.Hold) string {
	switch h.Scope {
	case "class":
		return "class " + h.ResourceClass
	case "user":
		return "user " + h.Tenant + "/" + h.User
	default:
		return h.Scope
	}
}
