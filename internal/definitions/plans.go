package definitions

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/workflow"
)

// Plan returns the plan of a definition, and which version it is; version 0 means the latest.
// Plans are kept: mostly this asks nobody. The error wraps ErrNotFound when there is none.
func (s *Store) Plan(ctx context.Context, id string, version int) (*workflow.Plan, int, error) {
	if version == 0 {
		var err error
		if version, err = s.latest(ctx, id); err != nil {
			return nil, 0, err
		}
	}
	if plan := s.cache.plan(id, version); plan != nil {
		return plan, version, nil
	}
	stored, err := s.Get(ctx, id, version)
	if err != nil {
		return nil, 0, err
	}
	d, err := workflow.Parse(stored.Text)
	if err != nil {
		return nil, 0, fmt.Errorf("plan version %d of definition %s: %w", version, id, err)
	}
	d.Version = version
	plan, err := workflow.Compile(d)
	if err != nil {
		return nil, 0, fmt.Errorf("plan version %d of definition %s: %w", version, id, err)
	}
	s.cache.add(id, version, plan)
	return plan, version, nil
}

// latest returns the latest version of a definition.
func (s *Store) latest(ctx context.Context, id string) (int, error) {
	if version := s.cache.latestOf(id); version > 0 {
		return version, nil
	}
	var version int
	err := s.pool.QueryRow(ctx, `SELECT version FROM wf_definitions WHERE id = $1 ORDER BY version DESC LIMIT 1`, id).Scan(&version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, missing(id, 0)
	case err != nil:
		return 0, fmt.Errorf("find the latest version of definition %s: %w", id, err)
	}
	s.cache.setLatest(id, version)
	return version, nil
}

// Run forgets which versions are the latest when another process has put one, until ctx
// ends. A store works without it, with Freshness.
func (s *Store) Run(ctx context.Context) error {
	if s.signals == nil {
		<-ctx.Done()
		return nil
	}
	wakes, stop := s.signals.Subscribe(WakeName)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
			s.cache.forget()
		}
	}
}

// key is a version of a definition.
type key struct {
	id      string
	version int
}

// cached is an entry of the cache.
type cached struct {
	key
	plan *workflow.Plan
}

// known is the latest version that a process knows of, and since when.
type known struct {
	version int
	at      time.Time
}

// cache keeps the plans that were used last, and which versions are the latest.
type cache struct {
	size int
	now  func() time.Time

	mu    sync.Mutex
	plans map[key]*list.Element
	used  *list.List // the one used last in front
	known map[string]known
}

func newCache(size int, now func() time.Time) *cache {
	return &cache{size: size, now: now, plans: map[key]*list.Element{}, used: list.New(), known: map[string]known{}}
}

func (c *cache) plan(id string, version int) *workflow.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.plans[key{id, version}]
	if element == nil {
		return nil
	}
	c.used.MoveToFront(element)
	entry, _ := element.Value.(cached)
	return entry.plan
}

func (c *cache) add(id string, version int, plan *workflow.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{id, version}
	if c.plans[k] != nil {
		return // somebody else was faster
	}
	c.plans[k] = c.used.PushFront(cached{key: k, plan: plan})
	if c.used.Len() > c.size {
		entry, _ := c.used.Remove(c.used.Back()).(cached)
		delete(c.plans, entry.key)
	}
}

// latestOf returns 0 when the latest version is not known.
func (c *cache) latestOf(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[id]
	if !ok || c.now().Sub(k.at) >= Freshness {
		return 0
	}
	return k.version
}

// setLatest notes a version. Versions only grow: an answer that comes late is no news.
func (c *cache) setLatest(id string, version int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[id]; ok && k.version > version {
		return
	}
	if len(c.known) >= 10*c.size {
		clear(c.known)
	}
	c.known[id] = known{version: version, at: c.now()}
}

func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.known)
}
