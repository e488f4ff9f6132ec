package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/topics"
)

// QueueCountMax is how far the executions of one priority are counted, and QueueUsersMax
// how many users are told of at most.
const (
	QueueCountMax = 10_000
	QueueUsersMax = 1000
)

// QueueFilter selects what a status is of. The zero value selects every class, and no
// users.
type QueueFilter struct {
	// ResourceClass, if set, is the only one.
	ResourceClass string
	// Users asks for a line per user and class. Tenant and User, if set, are the only
	// ones.
	Users        bool
	Tenant, User string
}

// QueueStatus is how the admission queue stands.
type QueueStatus struct {
	// Classes are those in which something waits or runs, and those of live workers.
	Classes []ClassStatus
	// Users are the ones who hold the most, QueueUsersMax at most.
	Users []UserStatus
	Holds []holds.Hold
}

// ClassStatus is how the queue of one resource class stands.
type ClassStatus struct {
	Class string
	// Queued is how many wait, and ByPriority how many of each priority from 1 on, each
	// counted to QueueCountMax. Held is how many of them are on hold.
	Queued, Held int64
	ByPriority   [topics.MaxPriority]int
	// Scheduled are admitted and not taken by a worker yet.
	Scheduled, Running int64
	// Total is what the workers have, 0 where one does not count it. Used is what the scheduled
	// and running executions hold.
	Total, Used topics.Requirements
	// Workers is how many are alive.
	Workers int
	// Oldest is since when the one waits that has been ready for longest, and Waited how
	// long that is; zero when none is ready.
	Oldest time.Time
	Waited time.Duration
}

// UserStatus is what one user has in one class.
type UserStatus struct {
	Class, Tenant, User string
	Queued, Running     int64
	Used                topics.Requirements
}

// ledgerAndFeed is what waits and what is in use, by flow, as of the statement: what
// the admitters have booked, and what they have not seen yet.
const ledgerAndFeed = `(
	SELECT flow, resource_class, queued, running, slots, cpu_millis, memory_bytes, gpus FROM admission_ledger
	UNION ALL
	SELECT flow, resource_class, queued, running, slots, cpu_millis, memory_bytes, gpus FROM admission_feed)`

// classesSQL costs what flows there are, and per class a bounded look into the index of
// what waits: how many wait makes no difference. Executions of one priority are ordered
// by the time at which they were ready, so the oldest is the first of one of them.
const classesSQL = `
	WITH held AS (
		SELECT l.id FROM admission_holds h JOIN admission_flows l ON h.scope = 'all'
			OR h.scope = 'class' AND h.resource_class = l.resource_class
			OR h.scope = 'user' AND h.tenant = l.tenant AND h.user_name = l.user_name),
	booked AS (
		SELECT resource_class, sum(queued) AS queued, sum(queued) FILTER (WHERE flow IN (SELECT id FROM held)) AS held,
			sum(running) AS running, sum(slots) AS slots,
			sum(cpu_millis) AS cpu_millis, sum(memory_bytes) AS memory_bytes, sum(gpus) AS gpus
		FROM ` + ledgerAndFeed + ` AS l WHERE $1 = '' OR resource_class = $1
		GROUP BY resource_class HAVING sum(queued) <> 0 OR sum(running) <> 0),
	live AS (
		SELECT resource_class, count(*) AS workers FROM workers WHERE expires_at > clock_timestamp() AND ($1 = '' OR resource_class = $1) GROUP BY resource_class)
	SELECT resource_class, coalesce(b.queued, 0)::bigint, coalesce(b.held, 0)::bigint, waiting.counts, scheduled.n, greatest(coalesce(b.running, 0) - scheduled.n, 0)::bigint,
		coalesce(b.slots, 0)::integer, coalesce(b.cpu_millis, 0)::bigint, coalesce(b.memory_bytes, 0)::bigint, coalesce(b.gpus, 0)::integer,
		coalesce(w.workers, 0), waiting.oldest, clock_timestamp() - waiting.oldest
	FROM booked b FULL JOIN live w USING (resource_class),
	LATERAL (SELECT count(*) AS n FROM executions e WHERE e.state = 'SCHEDULED' AND e.resource_class = coalesce(b.resource_class, w.resource_class)) AS scheduled,
	LATERAL (
		SELECT array_agg(picked.n ORDER BY p) AS counts, min(first.ready_at) AS oldest
		FROM generate_series(1, 5) AS p,
		LATERAL (
			SELECT count(*) AS n FROM (
				SELECT FROM executions e
				WHERE e.state = 'QUEUED' AND e.resource_class = coalesce(b.resource_class, w.resource_class) AND e.request ->> 'priority' = p::text
				LIMIT $2) AS counted) AS picked
		LEFT JOIN LATERAL (
			SELECT e.ready_at FROM executions e
			WHERE e.state = 'QUEUED' AND e.resource_class = coalesce(b.resource_class, w.resource_class) AND e.request ->> 'priority' = p::text
			ORDER BY e.rank LIMIT 1) AS first ON first.ready_at <= clock_timestamp()) AS waiting
	ORDER BY resource_class`

const usersSQL = `
	SELECT l.resource_class, l.tenant, l.user_name, sum(b.queued)::bigint, sum(b.running)::bigint,
		sum(b.slots)::integer, sum(b.cpu_millis)::bigint, sum(b.memory_bytes)::bigint, sum(b.gpus)::integer
	FROM ` + ledgerAndFeed + ` AS b JOIN admission_flows l ON l.id = b.flow
	WHERE ($1 = '' OR l.resource_class = $1) AND ($2 = '' OR l.tenant = $2) AND ($3 = '' OR l.user_name = $3)
	GROUP BY l.resource_class, l.tenant, l.user_name HAVING sum(b.queued) <> 0 OR sum(b.running) <> 0
	ORDER BY sum(b.slots) DESC, sum(b.queued) DESC, l.tenant, l.user_name, l.resource_class LIMIT $4`

// QueueStatus returns how the admission queue stands. Its parts are read one after the other,
// so while things move they may differ by what happened in between.
func (s *Store) QueueStatus(ctx context.Context, f QueueFilter) (QueueStatus, error) {
	rows, err := s.pool.Query(ctx, classesSQL, f.ResourceClass, QueueCountMax)
	if err != nil {
		return QueueStatus{}, fmt.Errorf("read queue: %w", err)
	}
	var status QueueStatus
	if status.Classes, err = pgx.CollectRows(rows, scanClass); err != nil {
		return QueueStatus{}, fmt.Errorf("read queue: %w", err)
	}
	totals, err := s.totals(ctx, f.ResourceClass)
	if err != nil {
		return QueueStatus{}, fmt.Errorf("read queue: %w", err)
	}
	for i := range status.Classes {
		status.Classes[i].Total = totals[status.Classes[i].Class]
	}
	if status.Holds, err = holds.List(ctx, s.pool); err != nil {
		return QueueStatus{}, fmt.Errorf("read queue: %w", err)
	}
	if !f.Users {
		return status, nil
	}
	rows, err = s.pool.Query(ctx, usersSQL, f.ResourceClass, f.Tenant, f.User, QueueUsersMax)
	if err == nil {
		status.Users, err = pgx.CollectRows(rows, scanUser)
	}
	if err != nil {
		return QueueStatus{}, fmt.Errorf("read users of the queue: %w", err)
	}
	return status, nil
}

// totals returns what the live workers have together, by class; class, if set, is the only
// one.
func (s *Store) totals(ctx context.Context, class string) (map[string]topics.Requirements, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+workerColumns+`, resource_class FROM workers
		WHERE ($1 = '' OR resource_class = $1) AND expires_at > clock_timestamp()`, class, admission.Unlimited)
	if err != nil {
		return nil, err
	}
	classes := map[string]admission.Capacity{}
	if _, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var name string
		w, err := scanWorker(row, &name)
		c := classes[name]
		c.Workers = append(c.Workers, w)
		classes[name] = c
		return struct{}{}, err
	}); err != nil {
		return nil, err
	}
	all := make(map[string]topics.Requirements, len(classes))
	for name, c := range classes {
		all[name] = amounts(c.Total())
	}
	return all, nil
}

func scanClass(row pgx.CollectableRow) (ClassStatus, error) {
	var c ClassStatus
	var counts []int
	var oldest *time.Time
	var waited *time.Duration
	err := row.Scan(&c.Class, &c.Queued, &c.Held, &counts, &c.Scheduled, &c.Running,
		&c.Used.Slots, &c.Used.CPUMillis, &c.Used.MemoryBytes, &c.Used.GPUs, &c.Workers, &oldest, &waited)
	copy(c.ByPriority[:], counts)
	if c.Oldest = moment(oldest); waited != nil {
		c.Waited = *waited
	}
	return c, err
}

func scanUser(row pgx.CollectableRow) (UserStatus, error) {
	var u UserStatus
	err := row.Scan(&u.Class, &u.Tenant, &u.User, &u.Queued, &u.Running,
		&u.Used.Slots, &u.Used.CPUMillis, &u.Used.MemoryBytes, &u.Used.GPUs)
	return u, err
}
