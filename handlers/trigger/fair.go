package trigger

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
)

// Fair returns a Creator that lets one trigger make at most so many batches at a time; the
// rest waits its turn. Connections to PostgreSQL are what is scarce: a trigger with a flood
// in a hundred partitions is not to have all of them.
func Fair(creator ingest.Creator, atOnce int) ingest.Creator {
	return &fair{creator: creator, atOnce: atOnce, lanes: make(map[string]*lane)}
}

type fair struct {
	creator ingest.Creator
	atOnce  int

	mu    sync.Mutex
	lanes map[string]*lane // by uid, while anybody is in it
}

// lane is how one trigger gets to the database.
type lane struct {
	places chan struct{}
	users  int
}

// Create implements ingest.Creator.
func (f *fair) Create(ctx context.Context, t *trigger.Compiled, messages []ingest.Message) ([]ingest.Outcome, error) {
	l := f.enter(t.UID)
	defer f.leave(t.UID, l)
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.places }()
	return f.creator.Create(ctx, t, messages)
}

func (f *fair) enter(uid string) *lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lanes[uid]
	if l == nil {
		l = &lane{places: make(chan struct{}, max(f.atOnce, 1))}
		f.lanes[uid] = l
	}
	l.users++
	return l
}

func (f *fair) leave(uid string, l *lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(f.lanes, uid)
	}
}
