package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

func (c *cli) queueCommand() *cobra.Command {
	var filter client.QueueFilter
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Look at what waits for admission, hold it, resume it",
		Long: `Show, by resource class, how much waits, how much runs, what the workers have and how
much of it is in use, and what is on hold. With --users, --user or --tenant show what
users have instead.`,
		Example: `  millrace queue
  millrace queue --class gpu -o wide --watch
  millrace queue --users
  millrace queue hold --class gpu --reason 'driver update until noon'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return group(cmd, args)
			}
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					return c.showQueue(ctx, api, filter, w)
				})
			})
		},
	}
	cmd.Flags().StringVar(&filter.ResourceClass, "class", "", "only this resource class")
	cmd.Flags().BoolVar(&filter.Users, "users", false, "show what users have")
	cmd.Flags().StringVar(&filter.User, "user", "", "show what this user has")
	cmd.Flags().StringVar(&filter.Tenant, "tenant", "", "show what the users of this tenant have")
	cmd.AddCommand(c.holdCommand(), c.resumeCommand(), c.holdsCommand())
	return cmd
}

func (c *cli) showQueue(ctx context.Context, api *client.Client, f client.QueueFilter, w io.Writer) error {
	status, err := api.Queue(ctx, f)
	if err != nil {
		return err
	}
	switch users := f.Users || f.User != "" || f.Tenant != ""; {
	case c.output == "json" || c.output == "yaml":
		return c.document(w, status)
	case users:
		return render(c, w, c.userListing(status.Users))
	default:
		if err := render(c, w, c.classListing(status.Classes)); err != nil || len(status.Holds) == 0 || c.output == "name" {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return render(c, w, c.holdListing(status.Holds, false))
	}
}

func (c *cli) classListing(items []client.QueueClass) listing[client.QueueClass] {
	now := c.now()
	return listing[client.QueueClass]{
		items: items,
		name:  func(q client.QueueClass) string { return q.ResourceClass },
		empty: "nothing waits or runs, and there are no workers",
		columns: []column[client.QueueClass]{
			{title: "CLASS", cell: func(q client.QueueClass) string { return q.ResourceClass }},
			{title: "QUEUED", cell: func(q client.QueueClass) string { return fmt.Sprint(q.Queued) }},
			{title: "BY PRIORITY", cell: byPriority},
			{title: "HELD", cell: func(q client.QueueClass) string { return fmt.Sprint(q.QueuedHeld) }},
			{title: "OLDEST", cell: func(q client.QueueClass) string { return ageOrDash(now, q.OldestReadyAt) }},
			{title: "SCHEDULED", cell: func(q client.QueueClass) string { return fmt.Sprint(q.Scheduled) }},
			{title: "RUNNING", cell: func(q client.QueueClass) string { return fmt.Sprint(q.Running) }},
			{title: "SLOTS", cell: func(q client.QueueClass) string { return slotsText(q.Capacity) }},
			{title: "CPUS", wide: true, cell: func(q client.QueueClass) string { return cpusText(q.Capacity) }},
			{title: "MEMORY", wide: true, cell: func(q client.QueueClass) string { return memoryText(q.Capacity) }},
			{title: "GPUS", wide: true, cell: func(q client.QueueClass) string { return gpusText(q.Capacity) }},
			{title: "WORKERS", cell: func(q client.QueueClass) string { return fmt.Sprint(q.Workers) }},
			{title: "STATE", cell: queueState, paint: func(q client.QueueClass) int {
				switch queueState(q) {
				case "ON HOLD", "NO WORKERS":
					return red
				case "FULL":
					return yellow
				default:
					return green
				}
			}},
		},
	}
}

// queueState says in a word how a queue goes.
func queueState(q client.QueueClass) string {
	switch {
	case q.Held:
		return "ON HOLD"
	case q.Workers == 0:
		return "NO WORKERS"
	case q.Queued > 0 && q.Capacity.Free.Slots == 0:
		return "FULL"
	default:
		return "OPEN"
	}
}

// byPriority lists how many of each priority wait, the most urgent first.
func byPriority(q client.QueueClass) string {
	const most = 10_000
	var parts []string
	for _, p := range q.QueuedByPriority {
		switch {
		case p.Queued >= most:
			parts = append(parts, fmt.Sprintf("P%d:%d+", p.Priority, most))
		case p.Queued > 0:
			parts = append(parts, fmt.Sprintf("P%d:%d", p.Priority, p.Queued))
		}
	}
	return dash(strings.Join(parts, " "))
}

// used writes how much of a resource is in use, and of how much where that is counted.
func used(used, total int64, text func(int64) string) string {
	switch {
	case total > 0:
		return text(used) + "/" + text(total)
	case used > 0:
		return text(used)
	default:
		return "-"
	}
}

func slotsText(k client.Capacity) string {
	return fmt.Sprintf("%d/%d", k.Used.Slots, k.Total.Slots)
}

func cpusText(k client.Capacity) string {
	return used(k.Used.CPUMillis, k.Total.CPUMillis, func(n int64) string {
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	})
}

func memoryText(k client.Capacity) string {
	return used(k.Used.MemoryBytes, k.Total.MemoryBytes, byteCount)
}

func gpusText(k client.Capacity) string {
	return used(int64(k.Used.GPUs), int64(k.Total.GPUs), func(n int64) string { return fmt.Sprint(n) })
}

func (c *cli) userListing(items []client.QueueUser) listing[client.QueueUser] {
	name := func(u client.QueueUser) string { return u.Tenant + "/" + u.User }
	return listing[client.QueueUser]{
		items: items,
		name:  name,
		empty: "nobody waits or runs anything",
		columns: []column[client.QueueUser]{
			{title: "USER", cell: name},
			{title: "CLASS", cell: func(u client.QueueUser) string { return u.ResourceClass }},
			{title: "QUEUED", cell: func(u client.QueueUser) string { return fmt.Sprint(u.Queued) }},
			{title: "RUNNING", cell: func(u client.QueueUser) string { return fmt.Sprint(u.Running) }},
			{title: "SLOTS", cell: func(u client.QueueUser) string { return fmt.Sprint(u.Used.Slots) }},
			{title: "WEIGHT", cell: func(u client.QueueUser) string { return strconv.FormatFloat(u.Weight, 'g', -1, 64) }},
			{title: "CPUS", wide: true, cell: func(u client.QueueUser) string {
				return strconv.FormatFloat(float64(u.Used.CPUMillis)/1000, 'f', -1, 64)
			}},
			{title: "MEMORY", wide: true, cell: func(u client.QueueUser) string { return byteCount(u.Used.MemoryBytes) }},
			{title: "GPUS", wide: true, cell: func(u client.QueueUser) string { return fmt.Sprint(u.Used.GPUs) }},
			{title: "STATE", cell: func(u client.QueueUser) string {
				if u.Held {
					return "ON HOLD"
				}
				return "OPEN"
			}},
		},
	}
}

func (c *cli) workersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workers",
		Aliases: []string{"worker"},
		Short:   "Look at who runs executions",
		Long:    `Look at the workers: who is alive, what each serves and has, and how much it runs.`,
		Example: `  millrace workers list
  millrace workers list --class gpu -o wide`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.workersListCommand())
	return cmd
}

func (c *cli) workersListCommand() *cobra.Command {
	var class string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the workers",
		Long: `List the workers, the live ones first. One that stops in order is gone from the list at
once; one that was lost is listed as LOST for a day.`,
		Example: `  millrace workers list
  millrace workers list --class gpu --watch`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAPI(func(api *client.Client) error {
				return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
					found, err := api.Workers(ctx, class)
					if err != nil {
						return err
					}
					return render(c, w, c.workerListing(found))
				})
			})
		},
	}
	cmd.Flags().StringVar(&class, "class", "", "only those that serve this resource class")
	return cmd
}

func (c *cli) workerListing(items []client.Worker) listing[client.Worker] {
	now := c.now()
	return listing[client.Worker]{
		items: items,
		name:  func(k client.Worker) string { return k.ID },
		empty: "no workers",
		columns: []column[client.Worker]{
			{title: "WORKER", cell: func(k client.Worker) string { return k.ID }},
			{title: "STATE", cell: workerState, paint: func(k client.Worker) int {
				if k.Alive {
					return green
				}
				return red
			}},
			{title: "CLASSES", cell: func(k client.Worker) string { return strings.Join(k.ResourceClasses, ",") }},
			{title: "EXECUTORS", cell: func(k client.Worker) string { return dash(strings.Join(k.Executors, ",")) }},
			{title: "RUNNING", cell: func(k client.Worker) string { return fmt.Sprint(k.Running) }},
			{title: "SLOTS", cell: func(k client.Worker) string { return slotsText(k.Capacity) }},
			{title: "CPUS", wide: true, cell: func(k client.Worker) string { return cpusText(k.Capacity) }},
			{title: "MEMORY", wide: true, cell: func(k client.Worker) string { return memoryText(k.Capacity) }},
			{title: "GPUS", wide: true, cell: func(k client.Worker) string { return gpusText(k.Capacity) }},
			{title: "POOLS", wide: true, cell: func(k client.Worker) string { return dash(poolsText(k.Pools)) }},
			{title: "SINCE", cell: func(k client.Worker) string { return age(now, k.Since) }},
			{title: "HEARD OF", cell: func(k client.Worker) string { return heardOf(now, k.AnnouncedAt) }},
		},
	}
}

// poolsText says where a worker's executors run things, and what room there is for each
// class.
func poolsText(pools []client.Pool) string {
	parts := make([]string, len(pools))
	for i, p := range pools {
		room := "not known yet"
		switch {
		case p.Unbounded:
			room = "any number of slots"
		case p.Total != nil:
			room = fmt.Sprintf("%d slots", p.Total.Slots)
		}
		parts[i] = fmt.Sprintf("%s (%s: %s)", p.Name, p.ResourceClass, room)
	}
	return strings.Join(parts, ", ")
}

func workerState(k client.Worker) string {
	if k.Alive {
		return "ALIVE"
	}
	return "LOST"
}

func heardOf(now, at time.Time) string { return age(now, at) + " ago" }
