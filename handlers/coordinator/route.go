package coordinator

import (
	"context"
	"time"

	"github.com/millrace/millrace/topics"
)

// Routes say where the tasks of a resource class go; *routing.Routes implements it.
type Routes interface {
	Topic(class string) topics.Topic
	// Record writes the route of a class down and returns the one before.
	Record(ctx context.Context, class, coordinator string) (before topics.Topic, err error)
}

// RouteBy has the tasks go where the routes say instead of to
// topics.ExecutionTasks. It is called before Run.
func (a *Admitter) RouteBy(routes Routes) { a.routes = routes }

// topic is where the tasks of a class go.
func (a *Admitter) topic(class string) topics.Topic {
	if a.routes == nil {
		return topics.ExecutionTasks
	}
	return a.routes.Topic(class)
}

// recordRoute tells others where the tasks of a class go, now that this is decided
// here. It gives up with ctx only.
func (a *Admitter) recordRoute(ctx context.Context, class string) {
	if a.routes == nil {
		return
	}
	for wait := a.cfg.PollInterval; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		before, err := a.routes.Record(ctx, class, a.cfg.ID)
		if err == nil {
			if topic := a.routes.Topic(class); before != "" && before != topic {
				a.log.WarnContext(ctx, "tasks of a class go elsewhere from now on",
					"resource_class", class, "topic", topic, "topic_before", before)
			}
			return
		}
		a.log.WarnContext(ctx, "route of a class could not be recorded, it will be repeated", "resource_class", class, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
