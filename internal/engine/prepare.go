package engine

import (
	"context"
	"time"
)

const (
	// uploadsPoll is how often new definitions are looked for that nobody has told of.
	uploadsPoll = 30 * time.Second
	// uploadsOverlap is how much of what was seen is looked at again: an upload is visible a
	// while after its time.
	uploadsOverlap = time.Minute
)

// JobTypes finds the types of jobs of definitions that were uploaded since a time, and
// when the youngest of them was: definitions.Store.
type JobTypes interface {
	JobTypes(ctx context.Context, since time.Time) (types []string, youngest time.Time, err error)
}

// RunPreparation tells jobs of the types that there may be, those of all definitions at
// first and then those of new versions, until ctx ends. Where jobs go over Kafka, the first
// one of a type then does not wait for its topic. Nobody waits for this: an upload
// succeeds while Kafka is away, and its topics are made once it is back.
func (e *Engine) RunPreparation(ctx context.Context, source JobTypes) error {
	uploads, stop := e.config.Signals.Subscribe(WakeDefinitions)
	defer stop()
	ticker := time.NewTicker(uploadsPoll)
	defer ticker.Stop()
	var youngest time.Time
	for {
		since := youngest
		if !since.IsZero() {
			since = since.Add(-uploadsOverlap)
		}
		types, until, err := source.JobTypes(ctx, since)
		switch {
		case err == nil:
			youngest = later(youngest, until)
			e.config.Jobs.Prepare(types)
		case ctx.Err() == nil:
			e.log.WarnContext(ctx, "topics of jobs are not prepared, the first job of a type may wait for its", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-uploads:
		case <-ticker.C:
		}
	}
}
