package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	topicRetryMin = 250 * time.Millisecond
	topicRetryMax = 5 * time.Second
	topicTimeout  = 15 * time.Second
	// topicCheck is how often topics that were there are made sure of again: one may have
	// been deleted.
	topicCheck = time.Minute
)

// Topics creates topics at the broker.
type Topics interface {
	// EnsureJobTopics creates those of the topics that do not exist. They are logical
	// names.
	EnsureJobTopics(ctx context.Context, names []string) error
}

// topicKeeper knows which job types have their topic, and creates what is missing. A job
// whose type has none waits outside of the outbox: a record for a topic that does not
// exist would be rejected.
type topicKeeper struct {
	topics  Topics
	created func()
	log     *slog.Logger

	mu     sync.Mutex
	ready  map[string]struct{}
	wanted map[string]struct{}
	err    error
	kick   chan struct{}
}

func newTopicKeeper(t Topics, created func(), log *slog.Logger) *topicKeeper {
	return &topicKeeper{
		topics: t, created: created, log: log, ready: make(map[string]struct{}), wanted: make(map[string]struct{}), kick: make(chan struct{}, 1),
	}
}

// has reports whether a type has its topic. If not, that is seen to.
func (k *topicKeeper) has(jobType string) bool {
	k.mu.Lock()
	_, ok := k.ready[jobType]
	k.mu.Unlock()
	if !ok {
		k.want(jobType)
	}
	return ok
}

func (k *topicKeeper) want(types ...string) {
	k.mu.Lock()
	missing := false
	for _, t := range types {
		if _, ok := k.ready[t]; !ok {
			k.wanted[t] = struct{}{}
			missing = true
		}
	}
	k.mu.Unlock()
	if !missing {
		return
	}
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// fault says what keeps topics from being created.
func (k *topicKeeper) fault() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *topicKeeper) run(ctx context.Context) {
	pause := topicRetryMin
	for {
		err := k.create(ctx, k.missing())
		wait := topicCheck
		if err != nil {
			wait, pause = pause, min(2*pause, topicRetryMax)
		} else {
			pause = topicRetryMin
		}
		kick := k.kick
		if err != nil {
			kick = nil // it would only fail the same way
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-kick:
			timer.Stop()
		case <-timer.C:
			if err == nil {
				k.checkAgain()
			}
		}
	}
}

func (k *topicKeeper) missing() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	types := make([]string, 0, len(k.wanted))
	for t := range k.wanted {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// checkAgain asks for all topics once more, without keeping jobs from them meanwhile.
func (k *topicKeeper) checkAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for t := range k.ready {
		k.wanted[t] = struct{}{}
	}
}

// create creates the topics of types: all at once or, when that does not succeed, one by
// one, so that one that the broker refuses does not keep the others.
func (k *topicKeeper) create(ctx context.Context, types []string) error {
	if len(types) == 0 {
		return nil
	}
	made, err := types, k.ensure(ctx, types)
	if err != nil {
		made = nil
		for _, t := range types {
			if len(types) == 1 || ctx.Err() != nil || k.ensure(ctx, []string{t}) != nil {
				continue
			}
			made = append(made, t)
		}
	}
	k.mu.Lock()
	for _, t := range made {
		delete(k.wanted, t)
		k.ready[t] = struct{}{}
	}
	before := k.err
	k.err = nil
	if err != nil {
		k.err = fmt.Errorf("topics of jobs cannot be created, jobs of type %s wait: %w", strings.Join(types[:min(5, len(types))], ", "), err)
	}
	k.mu.Unlock()
	if len(made) > 0 {
		k.created()
	}
	if err != nil && before == nil && ctx.Err() == nil {
		k.log.WarnContext(ctx, "topics of jobs cannot be created, their jobs wait", "job_types", types, "error", err)
	}
	return err
}

func (k *topicKeeper) ensure(ctx context.Context, types []string) error {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(TopicOf(t))
	}
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	return k.topics.EnsureJobTopics(ctx, names)
}
