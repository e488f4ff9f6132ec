package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// depthSlack is how close to a limit of depth transactions take turns. Below that
// they may queue side by side without seeing each other, since all that are open
// together hold no more than this.
const depthSlack = 8192

// checkDepth rejects what would make the queue deeper than it may be.
func (q *queueing) checkDepth(ctx context.Context, tx pgx.Tx) error {
	if len(q.valid) == 0 || q.rules.UserDepth <= 0 && q.rules.TotalDepth <= 0 {
		return nil
	}
	d := depths{tx: tx, byUser: map[string]int{}}
	if err := d.read(ctx, q); err != nil {
		return err
	}
	var kept []*candidate
	for _, c := range q.valid {
		user := owner(c.Request.Tenant, c.Request.User)
		message := ""
		switch {
		case q.rules.TotalDepth > 0 && d.total >= q.rules.TotalDepth:
			message = fmt.Sprintf("%d executions wait, as many as may (coordinator.queue_depth.total): try again later", d.total)
		case q.rules.UserDepth > 0 && d.byUser[user] >= q.rules.UserDepth:
			message = fmt.Sprintf("%d executions of the user %s wait, as many as may (coordinator.queue_depth.user): try again later",
				d.byUser[user], c.Request.User)
		}
		if message != "" {
			if err := q.reject(c.loaded, topics.RejectedQueueFull, message, 0); err != nil {
				return err
			}
			continue
		}
		d.total++
		d.byUser[user]++
		kept = append(kept, c)
	}
	q.valid = kept
	return nil
}

func owner(tenant, user string) string { return tenant + "\x1f" + user }

// depths are how many executions wait.
type depths struct {
	tx     pgx.Tx
	total  int
	byUser map[string]int
}

// read counts what waits. Where a limit is near, it does so again under a lock that
// keeps others from queueing at the same time.
func (d *depths) read(ctx context.Context, q *queueing) error {
	users := map[string]bool{}
	for _, c := range q.valid {
		users[owner(c.Request.Tenant, c.Request.User)] = true
	}
	if err := d.count(ctx, q, users); err != nil {
		return err
	}
	var locks []string
	if q.rules.TotalDepth > 0 && d.total+depthSlack > q.rules.TotalDepth {
		locks = append(locks, "")
	}
	for user := range users {
		if q.rules.UserDepth > 0 && d.byUser[user]+depthSlack > q.rules.UserDepth {
			locks = append(locks, user)
		}
	}
	if len(locks) == 0 {
		return nil
	}
	slices.Sort(locks)
	if _, err := d.tx.Exec(ctx, `
		SELECT pg_advisory_xact_lock(n) FROM (
			SELECT DISTINCT hashtextextended('millrace queue depth ' || k, 0) AS n FROM unnest($1::text[]) AS k ORDER BY 1) AS sorted`,
		locks); err != nil {
		return err
	}
	return d.count(ctx, q, users)
}

// count adds what the ledger and the feed have, which is what is queued at this
// moment.
func (d *depths) count(ctx context.Context, q *queueing, users map[string]bool) error {
	if q.rules.TotalDepth > 0 {
		if err := d.tx.QueryRow(ctx, `
			SELECT (SELECT coalesce(sum(queued), 0) FROM admission_ledger) + (SELECT coalesce(sum(queued), 0) FROM admission_feed)`,
		).Scan(&d.total); err != nil {
			return err
		}
	}
	if q.rules.UserDepth <= 0 {
		return nil
	}
	var tenants, names []string
	for user := range users {
		tenant, name, _ := strings.Cut(user, "\x1f")
		tenants, names = append(tenants, tenant), append(names, name)
	}
	rows, err := d.tx.Query(ctx, `
		WITH flows AS MATERIALIZED (
			SELECT l.id, l.tenant, l.user_name
			FROM unnest($1::text[], $2::text[]) AS u(tenant, user_name) JOIN admission_flows l USING (tenant, user_name)),
		fed AS (SELECT flow, sum(queued) AS queued FROM admission_feed GROUP BY flow)
		SELECT flows.tenant, flows.user_name, coalesce(sum(g.queued), 0) + coalesce(sum(fed.queued), 0)
		FROM flows LEFT JOIN admission_ledger g ON g.flow = flows.id LEFT JOIN fed ON fed.flow = flows.id
		GROUP BY 1, 2`, tenants, names)
	if err != nil {
		return err
	}
	var tenant, name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &n}, func() error {
		d.byUser[owner(tenant, name)] = n
		return nil
	})
	return err
}
