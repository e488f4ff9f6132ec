package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// perWindow is how many generations begin within the window of the inbox. More
// would waste less room, and cost each event one more lookup.
const perWindow = 2

func generationTable(number int64) string { return fmt.Sprintf("processed_events_%d", number) }

func (k *Keeper) keepGenerations(ctx context.Context, report *Report) error {
	status, err := Inspect(ctx, k.pool)
	if err != nil {
		return err
	}
	if len(status.Generations) == 0 {
		return errors.New("processed_generations is empty: the inbox cannot be written to, insert its newest generation")
	}
	var errs []error
	newest := status.Generations[len(status.Generations)-1]
	if status.Now.Sub(newest.Began) >= k.cfg.Inbox/perWindow {
		next := newest.Number + 1
		switch began, err := k.beginGeneration(ctx, next); {
		case err != nil:
			errs = append(errs, fmt.Errorf("make partition %s: %w", generationTable(next), err))
		case began:
			report.Made = append(report.Made, generationTable(next))
		}
	}
	for _, g := range status.Generations {
		if g.Ended.IsZero() || status.Now.Sub(g.Ended) < k.cfg.Inbox {
			continue
		}
		switch err := k.dropGeneration(ctx, g.Number); {
		case errors.Is(err, errInUse):
			report.Held = append(report.Held, Held{generationTable(g.Number), InUse})
		case err != nil:
			errs = append(errs, fmt.Errorf("drop partition %s: %w", generationTable(g.Number), err))
		default:
			report.Dropped = append(report.Dropped, generationTable(g.Number))
		}
	}
	return errors.Join(errs...)
}

// beginGeneration makes the next generation the one that new keys go to.
func (k *Keeper) beginGeneration(ctx context.Context, number int64) (began bool, err error) {
	table := generationTable(number)
	statements := []string{
		// Waits until nobody has rows to commit in the generation that ends, and
		// keeps others from inserting until the new one is known to be the newest.
		`LOCK TABLE ONLY processed_events IN SHARE ROW EXCLUSIVE MODE`,
		`CREATE TABLE ` + table + ` (LIKE processed_events INCLUDING DEFAULTS, PRIMARY KEY (consumer, source, event_id, session))`,
		fmt.Sprintf(`ALTER TABLE processed_events ATTACH PARTITION %s FOR VALUES IN (%d)`, table, number),
		fmt.Sprintf(`INSERT INTO processed_generations (number) VALUES (%d)`, number),
	}
	err = k.attempt(ctx, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if exists(err) {
		return false, nil // by somebody else
	}
	return err == nil, err
}

// dropGeneration forgets a generation. Nobody is looking into it then.
func (k *Keeper) dropGeneration(ctx context.Context, number int64) error {
	return k.attempt(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE ONLY processed_events IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+generationTable(number)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM processed_generations WHERE number = $1`, number)
		return err
	})
}
