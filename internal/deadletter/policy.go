package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// Policy redrives letters by themselves: the first time From after the failure,
// then after twice that and so on, up to Max apart.
type Policy struct {
	Name string
	// Topic (by its name at the broker), Consumer, EventType and Class must be those
	// of the letter. Empty ones match all.
	Topic, Consumer, EventType, Class string
	From, Max                         time.Duration
	// Attempts is after how many redrives of the event, whoever asked for them, the
	// letter is left to people.
	Attempts int
	// HoldAbove holds the redrives of letters with one fingerprint while more than so
	// many are OPEN: then the cause is not one that passes. 0 stands for never.
	HoldAbove int
}

// Policies are tried in their order: the first that matches a letter counts.
type Policies []Policy

// NextRetry is when a letter is redriven by a policy.
type NextRetry struct {
	Policy string
	At     time.Time
	// Held says that it waits until its group is smaller. Not in lists.
	Held bool
}

// maxDoublings keeps the wait from overflowing; by then it is Max.
const maxDoublings = 30

// wait is how long after its failure a letter is redriven.
func (p Policy) wait(replays int) time.Duration {
	wait := p.From
	for range min(replays, maxDoublings) {
		if wait >= p.Max/2 {
			return p.Max
		}
		wait *= 2
	}
	return min(wait, p.Max)
}

func (p Policy) matches(l Letter) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(p.Topic, l.Record.Topic) && same(p.Consumer, l.Consumer) && same(p.EventType, l.EventType) && same(p.Class, l.Class)
}

// match adds the conditions of matches.
func (p Policy) match(q *postgres.Conditions) {
	q.Equal("topic", p.Topic)
	q.Equal("consumer", p.Consumer)
	if p.EventType != "" { // is null when the record is no event
		q.Where("event_type IS NOT DISTINCT FROM %s", p.EventType)
	}
	q.Equal("class", p.Class)
}

// of returns the policy that counts for a letter, or nil.
func (ps Policies) of(l Letter) *Policy {
	for i := range ps {
		if ps[i].matches(l) {
			return &ps[i]
		}
	}
	return nil
}

// next returns when a letter is redriven by itself, or nil.
func (ps Policies) next(l Letter) *NextRetry {
	if l.Status != Open || !l.ArchivedAt.IsZero() {
		return nil
	}
	p := ps.of(l)
	if p == nil || l.ReplayCount >= p.Attempts {
		return nil
	}
	return &NextRetry{Policy: p.Name, At: l.LastFailure.Add(p.wait(l.ReplayCount))}
}

// loadNextRetry fills in NextRetry of one letter.
func (s *Store) loadNextRetry(ctx context.Context, l *Letter) error {
	l.NextRetry = s.cfg.Policies.next(*l)
	if l.NextRetry == nil {
		return nil
	}
	p := s.cfg.Policies.of(*l)
	if p.HoldAbove == 0 {
		return nil
	}
	n, err := s.countOpen(ctx, s.cfg.Pool, Filter{Fingerprint: l.Fingerprint})
	l.NextRetry.Held = n > int64(p.HoldAbove)
	return err
}

// due selects the letters that the policy at i redrives now.
func (ps Policies) due(i int, after uuid.UUID) *postgres.Conditions {
	p := ps[i]
	q := Filter{}.open()
	p.match(q)
	for _, earlier := range ps[:i] {
		q.Not(earlier.match)
	}
	q.Where("replay_count < %s", p.Attempts)
	q.Where("last_failed_at + least(%s::interval * power(2, least(replay_count, %s)), %s::interval) <= now()", p.From, maxDoublings, p.Max)
	if p.HoldAbove > 0 {
		q.Where(`fingerprint NOT IN (SELECT fingerprint FROM dead_letters
			WHERE status = 'OPEN' AND archived_at IS NULL GROUP BY fingerprint HAVING count(*) > %s)`, p.HoldAbove)
	}
	q.Where("id > %s", after)
	return q
}

// retryDue redrives what policies redrive now, in chunks, each in a transaction
// that the lease fences. A letter that cannot be redriven is looked at again the
// next time.
func (s *Store) retryDue(ctx context.Context, held *lease.Held) error {
	topics, err := s.topicNames(ctx)
	if err != nil {
		return err
	}
	for i, p := range s.cfg.Policies {
		r := redriver{store: s, topics: topics, Terms: Terms{
			Actor: "policy:" + p.Name, Reason: fmt.Sprintf("at most %d redrives, %s to %s apart", p.Attempts, p.From, p.Max)}}
		for after, more := uuid.Nil, true; more; {
			if err := s.betweenChunks(); err != nil {
				return err
			}
			after, more, err = s.retryChunk(ctx, held, r, s.cfg.Policies.due(i, after))
			if err != nil {
				return fmt.Errorf("retry dead letters by policy %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

func (s *Store) retryChunk(ctx context.Context, held *lease.Held, r redriver, q *postgres.Conditions) (last uuid.UUID, more bool, err error) {
	var sent []Outcome
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		sent, more = nil, false
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		letters, err := lockLetters(ctx, tx, q, s.chunk, false)
		if err != nil || len(letters) == 0 {
			return err
		}
		last, more = letters[len(letters)-1].ID, len(letters) == s.chunk
		outcomes, err := r.settle(ctx, tx, letters, false)
		for _, o := range outcomes {
			if o.Err == nil {
				sent = append(sent, o)
			}
		}
		return err
	})
	if err != nil {
		return last, false, err
	}
	s.noteSent(sent)
	return last, more, nil
}
