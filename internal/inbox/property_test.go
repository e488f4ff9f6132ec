package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

const (
	eventually = 10 * time.Second
	tick       = 5 * time.Millisecond

	eventuallyLoaded = time.Minute
)

// Whatever is redelivered, by whichever owner, however batches are cut, wherever
// the handler breaks: each event has one effect, in the order of the log.
func TestRedeliveryProperty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		ctx := context.Background()
		_, err := b.pool.Exec(ctx, `TRUNCATE effects, processed_events, consumer_offsets, dead_letters`)
		require.NoError(rt, err)
		faults := rapid.SliceOfN(rapid.Bool(), 0, 5).Draw(rt, "faults")
		c := pipeline.Consumer{Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
			for _, m := range batch {
				if m.ID[0] == 'x' {
					return pipeline.Permanent(errors.New("bad"))
				}
				if err := insertMark(ctx, tx, m); err != nil {
					return err
				}
			}
			if len(faults) > 0 {
				broken := faults[0]
				faults = faults[1:]
				if broken {
					return pipeline.Infrastructure(errors.New("broken"))
				}
			}
			return nil
		})}
		n := rapid.IntRange(1, 30).Draw(rt, "records")
		log := make([]topics.Record, n)
		var want, filed []string
		seen := map[string]bool{}
		for i := range log {
			id := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"m", "m", "m", "x"}).Draw(rt, "kind"), rapid.IntRange(0, 40).Draw(rt, "id"))
			log[i] = markRecord(t, id)
			switch {
			case id[0] == 'x':
				filed = append(filed, id)
			case !seen[id]:
				want = append(want, id)
			}
			seen[id] = true
		}
		o := b.own(t, c)
		for at := 0; at < n; {
			size := min(rapid.IntRange(1, 12).Draw(rt, "batch"), n-at)
			if rapid.IntRange(0, 4).Draw(rt, "rebalance") == 0 {
				o = b.own(t, c)
			}
			if _, err := o.feed(ctx, int64(at), log[at:at+size]...); err == nil {
				at += size
			}
			// An owner may start over at any earlier offset.
			if rapid.IntRange(0, 6).Draw(rt, "back") == 0 {
				at = rapid.IntRange(0, at).Draw(rt, "to")
			}
		}
		require.Equal(rt, want, nilIfEmpty(b.effects(t)))
		require.Equal(rt, filed, nilIfEmpty(b.strings(t, `SELECT convert_from(key, 'UTF8') FROM dead_letters ORDER BY "offset"`)))
	})
}

func nilIfEmpty(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
}
