package object

import (
	"context"
	"sync"
)

// Siblings are rows that were read together, each known by a key. What belongs to
// one of them is loaded for all of them when it is first asked for. The zero value
// has none. It is safe for concurrent use.
type Siblings[T any] struct {
	// Keys are those of all siblings.
	Keys []string
	// Load loads what belongs to the keys, at most limit for each; what nothing
	// belongs to is not in the map.
	Load func(ctx context.Context, keys []string, limit int) (map[string]T, error)

	mu    sync.Mutex
	loads map[int]*load[T]
}

type load[T any] struct {
	done  chan struct{}
	found map[string]T
	err   error
}

// Of returns what belongs to one of the siblings; the zero value if nothing does.
func (s *Siblings[T]) Of(ctx context.Context, key string, limit int) (T, error) {
	s.mu.Lock()
	l, under := s.loads[limit]
	if !under {
		l = &load[T]{done: make(chan struct{})}
		if s.loads == nil {
			s.loads = map[int]*load[T]{}
		}
		s.loads[limit] = l
	}
	s.mu.Unlock()
	if !under {
		l.run(ctx, s, limit)
	}
	select {
	case <-l.done:
		return l.found[key], l.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (l *load[T]) run(ctx context.Context, s *Siblings[T], limit int) {
	defer close(l.done) // also when Load panics, so that nobody waits for ever
	l.err = errPanicked
	l.found, l.err = s.Load(ctx, s.Keys, limit)
}
