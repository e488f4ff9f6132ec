package inbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
)

// Resolve implements pipeline.Resolver.
func (s *Store) Resolve(ctx context.Context, consumer string, letters []string) error {
	return postgres.InTx(ctx, s.db, func(ctx context.Context, tx pgx.Tx) error {
		return deadletter.Resolve(ctx, tx, consumer, letters)
	})
}

// fileLetters writes the letters that are fresh, and an outbox row for each.
func fileLetters(ctx context.Context, tx effectTx, w pipeline.Work, verdicts []pipeline.Verdict) error {
	var letters []*middleware.Letter
	for i, e := range w.Entries {
		if e.Letter != nil && verdicts[i] == pipeline.Fresh {
			letters = append(letters, e.Letter)
		}
	}
	if len(letters) == 0 {
		return nil
	}
	if err := deadletter.File(ctx, tx, letters...); err != nil {
		return err
	}
	err := publishLetters(ctx, tx, w, letters)
	crash.At("consumer.letters_filed")
	return err
}
