package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) tasksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tasks",
		Aliases: []string{"task", "user-tasks"},
		Short:   "List, claim and complete what workflows ask people to do",
		Long: `A user task is a step that waits for a person. It is named by its instance and the id of
its step, or by both with a point between them.`,
		Example: `  millrace tasks list --group underwriters
  millrace tasks claim 0198c0de-0000-7000-8000-000000000001 manual-review-task --user alice
  millrace tasks complete 0198c0de-0000-7000-8000-000000000001.manual-review-task --var reviewDecision=APPROVED`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.tasksListCommand(), c.taskClaim("claim", "Take a user task for a person"),
		c.taskClaim("unclaim", "Give a user task back"), c.tasksCompleteCommand())
	return cmd
}

func (c *cli) tasksListCommand() *cobra.Command {
	var filter client.UserTaskQuery
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List user tasks, the oldest first",
		Long:    `List user tasks, the oldest first: those that are open, unless --status is given.`,
		Example: `  millrace tasks list --assignee alice
  millrace tasks list --overdue -o wide`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := chosenOf("--status", filter.Statuses, taskStatuses()); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			filter.PageSize = pageOf(limit)
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					items, err := firstOf(api.UserTasks(ctx, filter), limit)
					if err != nil {
						return err
					}
					return render(c, w, c.userTaskListing(items, false))
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.InstanceID, "instance", "", "only tasks of this instance")
	flags.StringVar(&filter.DefinitionID, "definition", "", "only tasks of instances of this definition")
	flags.StringVar(&filter.Assignee, "assignee", "", "only tasks of this person")
	flags.StringVar(&filter.Group, "group", "", "only tasks for members of this group")
	flags.StringSliceVar(&filter.Statuses, "status", nil, "only tasks with this status (repeatable)")
	flags.BoolVar(&filter.Overdue, "overdue", false, "only tasks that should have been done by now")
	flags.BoolVar(&filter.Unassigned, "unassigned", false, "only tasks that nobody has")
	flags.IntVar(&limit, "limit", 50, "how many to list at most; 0 lists all")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(taskStatuses())) // the flag exists
	return cmd
}

func taskStatuses() []string { return []string{"OPEN", "CLAIMED", "COMPLETED", "CANCELLED"} }

func (c *cli) userTaskListing(items []client.UserTask, single bool) listing[client.UserTask] {
	now := c.now()
	return listing[client.UserTask]{
		items: items, single: single,
		name:  func(t client.UserTask) string { return t.ID },
		empty: "no user tasks",
		columns: []column[client.UserTask]{
			{title: "INSTANCE", cell: func(t client.UserTask) string { return t.InstanceID }},
			{title: "STEP", cell: func(t client.UserTask) string { return t.StepID }},
			{title: "NAME", cell: func(t client.UserTask) string { return shorten(t.Name, c.output == "wide") }},
			{title: "STATUS", cell: func(t client.UserTask) string { return t.Status }},
			{title: "ASSIGNEE", cell: func(t client.UserTask) string { return dash(t.Assignee) }},
			{title: "GROUPS", cell: func(t client.UserTask) string { return dash(strings.Join(t.CandidateGroups, ",")) }},
			{title: "DUE", cell: func(t client.UserTask) string {
				switch {
				case t.DueAt == nil:
					return "-"
				case t.DueAt.After(now):
					return "in " + span(t.DueAt.Sub(now))
				}
				return "overdue " + span(now.Sub(*t.DueAt))
			}, paint: func(t client.UserTask) int {
				if t.DueAt != nil && t.CompletedAt == nil && !t.DueAt.After(now) {
					return red
				}
				return plain
			}},
			{title: "AGE", cell: func(t client.UserTask) string { return age(now, t.CreatedAt) }},
			{title: "BUSINESS KEY", wide: true, cell: func(t client.UserTask) string { return dash(t.BusinessKey) }},
			{title: "DEFINITION", wide: true, cell: func(t client.UserTask) string { return t.DefinitionID }},
			{title: "LABEL", wide: true, cell: func(t client.UserTask) string { return dash(t.Label) }},
			{title: "DONE BY", wide: true, cell: func(t client.UserTask) string { return dash(t.CompletedBy) }},
		},
	}
}

// taskOf returns the instance and the step that arguments name.
func taskOf(names []string) (instance, step string, err error) {
	if len(names) == 2 {
		return names[0], names[1], nil
	}
	instance, step, ok := strings.Cut(names[0], ".")
	if !ok || instance == "" || step == "" {
		return "", "", usagef("name the task by INSTANCE STEP, or by INSTANCE.STEP, not %q", names[0])
	}
	return instance, step, nil
}

func (c *cli) taskClaim(verb, short string) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:     verb + " INSTANCE STEP",
		Short:   short,
		Long:    short + ".\nWithout --user the owner of the token is meant.",
		Example: "  millrace tasks " + verb + " 0198c0de-0000-7000-8000-000000000001 manual-review-task --user alice",
		Args:    args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			instance, step, err := taskOf(names)
			if err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				t, err := api.ClaimUserTask(cmd.Context(), instance, step, verb, user)
				if err != nil {
					return err
				}
				return render(c, c.out, c.userTaskListing([]client.UserTask{t}, true))
			})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "for whom")
	return cmd
}

func (c *cli) tasksCompleteCommand() *cobra.Command {
	var variables variableFlags
	var by string
	cmd := &cobra.Command{
		Use:   "complete INSTANCE STEP",
		Short: "Complete a user task",
		Long: `Complete a user task. The variables are merged into those of the instance, which goes on.
Completing it again changes nothing, and is refused once the instance has ended.`,
		Example: `  millrace tasks complete 0198c0de-0000-7000-8000-000000000001 manual-review-task --by alice --var reviewDecision=APPROVED`,
		Args:    args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, names []string) error {
			instance, step, err := taskOf(names)
			if err != nil {
				return err
			}
			given, err := variables.object(c)
			if err != nil {
				return err
			}
			return c.withAPI(func(api *client.Client) error {
				if err := api.CompleteUserTask(cmd.Context(), instance, step, by, given); err != nil {
					return err
				}
				c.notef("%s", fmt.Sprintf("task %s of instance %s is completed", step, instance))
				return nil
			})
		},
	}
	variables.addTo(cmd)
	cmd.Flags().StringVar(&by, "by", "", "who did it")
	return cmd
}
