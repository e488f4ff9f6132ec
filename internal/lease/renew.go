package lease

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/crash"
)

// renewLoop renews all held leases until there is none. One goroutine per
// manager runs it, started with the first lease.
func (m *Manager) renewLoop() {
	interval := m.ttl / renewals
	timer := time.NewTimer(interval)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-timer.C:
		case <-m.changed:
		}
		leases, done := m.heldOrStop()
		if done {
			return
		}
		err := m.renew(leases)
		switch {
		case err != nil && !failed:
			m.log.Warn("leases cannot be renewed", "leases", len(leases), "error", err)
		case err == nil && failed:
			m.log.Info("leases are renewed again")
		}
		failed = err != nil
		if failed {
			timer.Reset(interval / 5) // there is time for a few more tries
		} else {
			timer.Reset(interval)
		}
	}
}

// heldOrStop returns what is held. When that is nothing the loop has to end, and
// whoever acquires the next lease starts another.
func (m *Manager) heldOrStop() (leases []*Held, stop bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held) == 0 {
		m.renewing = false
		return nil, true
	}
	for _, h := range m.held {
		leases = append(leases, h)
	}
	return leases, false
}

// The statement leaves out a row that somebody else has locked, rather than let it
// hold up all others; such a lease is neither renewed nor lost, and its next turn
// comes. current tells the two apart.
const renewSQL = `
	WITH asked AS (
		SELECT name, token FROM unnest($1::text[], $2::bigint[]) AS t(name, token)
	), free AS (
		SELECT l.name FROM leases l JOIN asked USING (name, token)
		WHERE l.expires_at > clock_timestamp()
		FOR NO KEY UPDATE OF l SKIP LOCKED
	), renewed AS (
		UPDATE leases l SET expires_at = clock_timestamp() + make_interval(secs => $3)
		FROM free WHERE l.name = free.name RETURNING l.name
	)
	SELECT asked.name, asked.token, renewed.name IS NOT NULL,
		EXISTS (SELECT FROM leases l WHERE l.name = asked.name AND l.token = asked.token AND l.expires_at > clock_timestamp())
	FROM asked LEFT JOIN renewed USING (name)`

func (m *Manager) renew(leases []*Held) error {
	ctx, cancel := context.WithTimeout(context.Background(), m.ttl/renewals)
	defer cancel()
	names, tokens := make([]string, len(leases)), make([]int64, len(leases))
	byName := make(map[string]*Held, len(leases))
	for i, h := range leases {
		names[i], tokens[i], byName[h.name] = h.name, h.token, h
	}

	sent := time.Now()
	rows, err := m.pool.Query(ctx, renewSQL, names, tokens, m.ttl.Seconds())
	if err != nil {
		return err
	}
	defer rows.Close()
	var lost, renewed []*Held
	for rows.Next() {
		var name string
		var token int64
		var done, current bool
		if err := rows.Scan(&name, &token, &done, &current); err != nil {
			return err
		}
		switch {
		case done:
			renewed = append(renewed, byName[name])
		case !current:
			lost = append(lost, byName[name])
		}
	}
	// Only an error-free end means that the statement was committed.
	if err := rows.Err(); err != nil {
		return err
	}
	crash.At("lease.renewed")
	for _, h := range renewed {
		h.confirm(sent)
	}
	for _, h := range lost {
		h.lose("expired or taken over")
	}
	return nil
}
