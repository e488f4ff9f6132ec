package inbox

import (
	"context"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
)

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
	*tx.appended = true
	err := publishLetters(ctx, tx, w, letters)
	crash.At("consumer.letters_filed")
	return err
}
