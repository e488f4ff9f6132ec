package rest

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/topics"
)

// Queue tells how the admission queue and the workers stand; *store.Store implements
// it.
type Queue interface {
	QueueStatus(ctx context.Context, f store.QueueFilter) (store.QueueStatus, error)
	Workers(ctx context.Context, class string) ([]store.WorkerStatus, error)
}

// QueueStatus is the answer to GET /v1/queue.
type QueueStatus struct {
	Classes []QueueClass `json:"classes" doc:"Those in which something waits or runs, and those of live workers"`
	Users   []QueueUser  `json:"users,omitempty" doc:"If they were asked for: those who hold the most first, 1000 at most"`
	Holds   []Hold       `json:"holds" doc:"What is on hold"`
}

// QueueClass is how the queue of one resource class stands.
type QueueClass struct {
	ResourceClass    string          `json:"resource_class"`
	Queued           int64           `json:"queued" doc:"How many wait for admission"`
	QueuedHeld       int64           `json:"queued_held,omitempty" doc:"How many of them are on hold, be it everything, the class or their user"`
	QueuedByPriority []QueuePriority `json:"queued_by_priority" doc:"The most urgent first"`
	Scheduled        int64           `json:"scheduled" doc:"Admitted, and not taken by a worker yet"`
	Running          int64           `json:"running"`
	Capacity         Capacity        `json:"capacity"`
	Workers          int             `json:"workers" doc:"How many are alive"`
	OldestReadyAt    *time.Time      `json:"oldest_ready_at,omitempty" doc:"Since when the one waits that has been ready for longest"`
	Held             bool            `json:"held,omitempty" doc:"Everything or this class is on hold"`
}

// QueuePriority is how many executions of one priority wait.
type QueuePriority struct {
	Priority int `json:"priority"`
	Queued   int `json:"queued" doc:"10000 stands for that many or more"`
}

// Capacity is what a class has and what of it is in use.
type Capacity struct {
	Total Resources  `json:"total" doc:"What the workers have, and the class may use at once"`
	Used  Resources  `json:"used" doc:"By what is scheduled or running"`
	Free  *Resources `json:"free" doc:"Of what is counted"`
}

// Resources are amounts of what executions take. Amounts that nobody counts are
// missing.
type Resources struct {
	Slots       int   `json:"slots"`
	CPUMillis   int64 `json:"cpu_millis,omitempty" doc:"Processor time in thousandths of a core"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	GPUs        int   `json:"gpus,omitempty"`
}

// QueueUser is what one user has in one resource class.
type QueueUser struct {
	ResourceClass string    `json:"resource_class"`
	Tenant        string    `json:"tenant"`
	User          string    `json:"user"`
	Queued        int64     `json:"queued"`
	Running       int64     `json:"running" doc:"Scheduled ones included"`
	Used          Resources `json:"used" doc:"By what is scheduled or running"`
	Weight        float64   `json:"weight" doc:"What the user's share is measured by; 1 unless it is configured"`
	Held          bool      `json:"held,omitempty" doc:"The user is on hold"`
}

// WorkerList is the answer to GET /v1/workers.
type WorkerList struct {
	Workers []Worker `json:"workers" doc:"The live ones first"`
}

// Worker is what is known of a worker.
type Worker struct {
	ID              string    `json:"id"`
	Alive           bool      `json:"alive" doc:"Whether it was heard of lately; a lost one is listed for a day"`
	ResourceClasses []string  `json:"resource_classes"`
	Executors       []string  `json:"executors"`
	Capacity        Capacity  `json:"capacity"`
	Pools           []Pool    `json:"pools,omitempty" doc:"Where its executors run things, if that is not the worker itself"`
	Running         int       `json:"running" doc:"How many executions it runs"`
	Since           time.Time `json:"since" doc:"When it came"`
	AnnouncedAt     time.Time `json:"announced_at" doc:"When it was heard of last"`
}

// Pool is the room that an executor of a worker has elsewhere, in a cluster for example.
type Pool struct {
	Executor      string     `json:"executor"`
	Name          string     `json:"name" doc:"Workers with the same pool share its room, which counts once in the capacity of a class"`
	ResourceClass string     `json:"resource_class"`
	Known         bool       `json:"known" doc:"False as long as the worker has not found out how much room there is; nothing is admitted until then"`
	Unbounded     bool       `json:"unbounded,omitempty" doc:"It has any number of slots"`
	Total         *Resources `json:"total,omitempty" doc:"All of it, used or not; amounts without a bound are missing"`
}

func fromPools(all []store.PoolStatus) []Pool {
	var out []Pool
	for _, p := range all {
		one := Pool{Executor: p.Executor, Name: p.Name, ResourceClass: p.Class, Known: p.Known, Unbounded: p.Unbounded}
		if p.Known {
			one.Total = new(fromAmounts(p.Total))
		}
		out = append(out, one)
	}
	return out
}

func fromAmounts(r topics.Requirements) Resources {
	return Resources{Slots: r.Slots, CPUMillis: r.CPUMillis, MemoryBytes: r.MemoryBytes, GPUs: r.GPUs}
}

func capacityOf(total, used topics.Requirements) Capacity {
	return Capacity{
		Total: fromAmounts(total), Used: fromAmounts(used),
		Free: &Resources{
			Slots: max(total.Slots-used.Slots, 0), CPUMillis: max(total.CPUMillis-used.CPUMillis, 0),
			MemoryBytes: max(total.MemoryBytes-used.MemoryBytes, 0), GPUs: max(total.GPUs-used.GPUs, 0),
		},
	}
}

type queueInput struct {
	ResourceClass string `query:"resource_class" maxLength:"128" doc:"Only this one"`
	Users         bool   `query:"users" doc:"Also what each user has"`
	Tenant        string `query:"tenant" maxLength:"128" doc:"Only users of this tenant; implies users"`
	User          string `query:"user" maxLength:"128" doc:"Only this user; implies users"`
}

type queueOutput struct{ Body *QueueStatus }

// queue handles GET /v1/queue.
func (a *API) queue(ctx context.Context, in *queueInput) (*queueOutput, error) {
	for name, value := range map[string]string{"resource_class": in.ResourceClass, "tenant": in.Tenant, "user": in.User} {
		if err := checkText(name, value); err != nil {
			return nil, err
		}
	}
	f := store.QueueFilter{
		ResourceClass: in.ResourceClass, Tenant: in.Tenant, User: in.User, Users: in.Users || in.Tenant != "" || in.User != "",
	}
	if p := auth.From(ctx); p.Tenant != "" {
		if f.Tenant != "" && f.Tenant != p.Tenant {
			return nil, badParameter("tenant", "invalid", "the token sees its own tenant only")
		}
		f.Tenant = p.Tenant
	}
	status, err := a.deps.Queue.QueueStatus(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &QueueStatus{Classes: make([]QueueClass, len(status.Classes)), Holds: visibleHolds(ctx, status.Holds)}
	for i, c := range status.Classes {
		out.Classes[i] = a.fromClass(c, status.Holds)
	}
	for _, u := range status.Users {
		out.Users = append(out.Users, a.fromUser(u, status.Holds))
	}
	return &queueOutput{Body: out}, nil
}

func (a *API) fromClass(c store.ClassStatus, held []holds.Hold) QueueClass {
	total := execution.Capped(c.Total, a.config.Terms.Cap(c.Class))
	out := QueueClass{
		ResourceClass: c.Class, Queued: c.Queued, QueuedHeld: c.Held, Scheduled: c.Scheduled, Running: c.Running,
		Capacity: capacityOf(total, c.Used), Workers: c.Workers, OldestReadyAt: moment(c.Oldest),
		QueuedByPriority: make([]QueuePriority, 0, len(c.ByPriority)),
	}
	for priority := topics.MaxPriority; priority >= topics.MinPriority; priority-- {
		out.QueuedByPriority = append(out.QueuedByPriority, QueuePriority{Priority: priority, Queued: c.ByPriority[priority-1]})
	}
	for _, h := range held {
		out.Held = out.Held || h.Scope != holds.User && h.Covers(c.Class, "", "")
	}
	return out
}

func (a *API) fromUser(u store.UserStatus, held []holds.Hold) QueueUser {
	out := QueueUser{
		ResourceClass: u.Class, Tenant: u.Tenant, User: u.User, Queued: u.Queued, Running: u.Running, Used: fromAmounts(u.Used),
		Weight: a.config.Terms.Weight(u.Tenant, u.User),
	}
	for _, h := range held {
		out.Held = out.Held || h.Scope == holds.User && h.Covers("", u.Tenant, u.User)
	}
	return out
}

type workersInput struct {
	ResourceClass string `query:"resource_class" maxLength:"128" doc:"Only those that serve it"`
}

type workersOutput struct{ Body WorkerList }

// workers handles GET /v1/workers.
func (a *API) workers(ctx context.Context, in *workersInput) (*workersOutput, error) {
	if err := checkText("resource_class", in.ResourceClass); err != nil {
		return nil, err
	}
	found, err := a.deps.Queue.Workers(ctx, in.ResourceClass)
	if err != nil {
		return nil, err
	}
	out := &workersOutput{Body: WorkerList{Workers: make([]Worker, len(found))}}
	for i, w := range found {
		out.Body.Workers[i] = Worker{
			ID: w.ID, Alive: w.Alive, ResourceClasses: w.Classes, Executors: w.Executors, Capacity: capacityOf(w.Total, w.Used),
			Pools: fromPools(w.Pools), Running: w.Running, Since: w.Since, AnnouncedAt: w.AnnouncedAt,
		}
	}
	return out, nil
}

func queueDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-queue", Summary: "What waits, and what is in use", Tags: []string{tagQueue},
		Description: "Per resource class, and per user if that is asked for. A token of a tenant sees its own users.",
		Errors:      []int{400, 503},
	}
}

func workersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-workers", Summary: "Who runs executions", Tags: []string{tagQueue},
		Description: "Workers announce themselves every few seconds. One that stops in order is gone from the list at once; one " +
			"that was lost is listed for a day.",
		Errors: []int{400, 503},
	}
}
