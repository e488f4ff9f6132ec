package routing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/topics"
)

// Routes are the routes of one coordinator's settings.
type Routes struct {
	pool   *pgxpool.Pool
	topic  func(class string) topics.Topic
	naming topics.Naming
}

// New returns the routes that topic gives, by logical name; naming is how topics are
// called at the broker.
func New(pool *pgxpool.Pool, topic func(class string) topics.Topic, naming topics.Naming) *Routes {
	return &Routes{pool: pool, topic: topic, naming: naming}
}

// Topic returns where the tasks of a class go.
func (r *Routes) Topic(class string) topics.Topic { return r.topic(class) }

// Record writes down where the tasks of a class go from now on, for a coordinator
// that has become its admitter. It returns where they went before: empty when
// nobody has said yet.
func (r *Routes) Record(ctx context.Context, class, coordinator string) (before topics.Topic, err error) {
	now := r.naming.Physical(r.topic(class))
	var old *string
	err = r.pool.QueryRow(ctx, `
		WITH old AS (SELECT topic FROM task_routes WHERE resource_class = $1),
		written AS (
			INSERT INTO task_routes (resource_class, topic, coordinator) VALUES ($1, $2, $3)
			ON CONFLICT (resource_class) DO UPDATE SET
				topic = excluded.topic, coordinator = excluded.coordinator, recorded_at = clock_timestamp())
		SELECT (SELECT topic FROM old)`, class, now, coordinator).Scan(&old)
	if err != nil {
		return "", fmt.Errorf("record route of class %s: %w", class, err)
	}
	if old == nil {
		return "", nil
	}
	return r.naming.Logical(*old), nil
}

// Route is where the tasks of one class go, and who reads them there.
type Route struct {
	Class string `json:"resource_class"`
	// Topic is its name at the broker.
	Topic string `json:"topic"`
	// Coordinator is the one that recorded the route, at Since.
	Coordinator string    `json:"coordinator"`
	Since       time.Time `json:"since"`
	// Workers is how many workers of the class are alive, Readers how many of them
	// read the topic.
	Workers int `json:"workers"`
	Readers int `json:"readers"`
	// Consumers are the consumers that read the topic in any live process, those of
	// workers among them, by name.
	Consumers []string `json:"consumers"`
}

// Inspect returns the routes of all classes, by class.
func Inspect(ctx context.Context, pool *pgxpool.Pool) ([]Route, error) {
	rows, err := pool.Query(ctx, `
		SELECT r.resource_class, r.topic, r.coordinator, r.recorded_at,
			(SELECT count(*) FROM workers w WHERE w.resource_class = r.resource_class AND w.expires_at > clock_timestamp()),
			(SELECT count(*) FROM workers w WHERE w.resource_class = r.resource_class AND w.expires_at > clock_timestamp()
				AND r.topic = ANY(w.topics)),
			(SELECT coalesce(array_agg(DISTINCT p.consumer ORDER BY p.consumer), '{}')
				FROM consumer_reports p JOIN consumer_instances i USING (instance)
				WHERE p.topic = r.topic AND i.seen_at > clock_timestamp() - make_interval(secs => $1))
		FROM task_routes r ORDER BY r.resource_class`, consumers.StaleAfter.Seconds())
	if err != nil {
		return nil, fmt.Errorf("inspect routes: %w", err)
	}
	routes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Route])
	if err != nil {
		return nil, fmt.Errorf("inspect routes: %w", err)
	}
	return routes, nil
}

// Verdict says what is to be thought of a route.
type Verdict string

// The verdicts.
const (
	// Idle: no worker serves the class, so nothing of it is admitted.
	Idle Verdict = "idle"
	// Direct: the workers of the class read the topic.
	Direct Verdict = "direct"
	// Staged: they do not, and another consumer does, which is a stage in between if
	// it passes on what it reads.
	Staged Verdict = "staged"
	// Partial: some of them do. The others get what these have no room for.
	Partial Verdict = "partial"
	// Unread: nobody reads the topic. No execution of the class ever starts.
	Unread Verdict = "unread"
)

// Judge returns the verdict, and the same in words.
func (r Route) Judge() (Verdict, string) {
	head := fmt.Sprintf("tasks of class %s go to %s, ", r.Class, r.Topic)
	switch {
	case r.Workers == 0:
		return Idle, head + "and no worker serves the class"
	case r.Readers == r.Workers:
		return Direct, head + "which its workers read"
	case r.Readers > 0:
		return Partial, head + fmt.Sprintf("which only %d of its %d workers read: the others get what these have no room for", r.Readers, r.Workers)
	case len(r.Consumers) > 0:
		return Staged, head + "which its workers do not read, but " + strings.Join(r.Consumers, ", ") + ": a stage in between"
	default:
		return Unread, head + "which nobody reads: its executions go back to the queue after their start limit, again and again"
	}
}
