package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/pipeline"
)

// wanted is what an agent finds when it looks.
type wanted struct {
	paused   map[string]bool
	commands []*command
	// sought are positions that were moved and not taken up, by group.
	sought []soughtPosition
}

// command is an action that the owner of a partition carries out.
type command struct {
	id        int64
	action    Action
	consumer  string
	topic     string
	partition int32
	offset    int64
	actor     string
	reason    string
	until     time.Time // by this process's clock
	// ordered says that the pipeline has the order for a dead letter.
	ordered bool
}

type soughtPosition struct {
	group, topic string
	partition    int32
	epoch        int64
}

const (
	wantedPauses = `SELECT name, paused_at IS NOT NULL FROM consumers WHERE name = ANY ($1)`

	wantedCommands = `
SELECT id, action, consumer, topic, partition, coalesce(to_offset, from_offset, -1), actor, reason,
    extract(epoch FROM expires_at - clock_timestamp())::float8
FROM consumer_actions WHERE outcome = 'PENDING' AND consumer = ANY ($1) AND expires_at > clock_timestamp() ORDER BY id`

	wantedPositions = `
SELECT consumer_group, topic, partition, owner_epoch FROM consumer_offsets WHERE sought AND consumer_group = ANY ($1)`

	lapseSQL = `
UPDATE consumer_actions SET outcome = 'EXPIRED', finished_at = clock_timestamp(), detail = 'no owner of the partition confirmed it in time'
WHERE outcome = 'PENDING' AND expires_at <= clock_timestamp()`

	// Only one who finds the command pending ends it.
	finishSQL = `
UPDATE consumer_actions SET outcome = $2, detail = nullif($3, ''), instance = $4, finished_at = clock_timestamp()
WHERE id = $1 AND outcome = 'PENDING' AND expires_at > clock_timestamp()`
)

// look reads what is wanted of the consumers of this process, in one round trip.
func (a *Agent) look(ctx context.Context) (wanted, error) {
	w := wanted{paused: make(map[string]bool)}
	var names, groups []string
	for _, c := range a.runtime.Status() {
		names, groups = append(names, c.Name), append(groups, c.Group)
	}
	batch := &pgx.Batch{}
	batch.Queue(wantedPauses, names).Query(func(rows pgx.Rows) error {
		var name string
		var paused bool
		_, err := pgx.ForEachRow(rows, []any{&name, &paused}, func() error { w.paused[name] = paused; return nil })
		return err
	})
	batch.Queue(wantedCommands, names).Query(func(rows pgx.Rows) error {
		var c command
		var left float64
		_, err := pgx.ForEachRow(rows, []any{&c.id, &c.action, &c.consumer, &c.topic, &c.partition, &c.offset, &c.actor, &c.reason, &left}, func() error {
			own := c
			own.until = time.Now().Add(time.Duration(left * float64(time.Second)))
			w.commands = append(w.commands, &own)
			return nil
		})
		return err
	})
	batch.Queue(wantedPositions, groups).Query(func(rows pgx.Rows) error {
		var p soughtPosition
		_, err := pgx.ForEachRow(rows, []any{&p.group, &p.topic, &p.partition, &p.epoch}, func() error {
			w.sought = append(w.sought, p)
			return nil
		})
		return err
	})
	if err := a.cfg.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return wanted{}, fmt.Errorf("look for what is wanted of consumers: %w", err)
	}
	return w, nil
}

// obey looks, and does what is wanted. What may take its time is done aside, under
// the context work.
func (a *Agent) obey(ctx, work context.Context) error {
	w, err := a.look(ctx)
	if err != nil {
		return err
	}
	a.pauseAndResume(w)
	for _, p := range w.sought {
		a.takeUp(work, p)
	}
	for _, c := range w.commands {
		a.mu.Lock()
		_, known := a.acting[c.id]
		a.mu.Unlock()
		if !known && a.report(c) != nil {
			a.begin(work, c)
		}
	}
	a.press()
	return nil
}

func (a *Agent) pauseAndResume(w wanted) {
	for name, paused := range w.paused {
		t := a.transport(name)
		if t == nil || a.paused[name] == paused {
			continue
		}
		a.paused[name] = paused
		if paused {
			t.Pause()
			a.cfg.Log.Info("consumer paused", "consumer", name)
		} else {
			t.Resume()
			a.cfg.Log.Info("consumer resumed", "consumer", name)
		}
	}
}

// takeUp has the owner of a partition whose position was moved go on there.
func (a *Agent) takeUp(work context.Context, p soughtPosition) {
	for _, r := range a.Local() {
		if r.Group != p.group || r.Topic != p.topic || r.Partition != p.partition || r.Epoch >= p.epoch {
			continue
		}
		a.mu.Lock()
		taking := a.taking[r.place()]
		a.taking[r.place()] = true
		a.mu.Unlock()
		if taking {
			return
		}
		a.work.Go(func() {
			defer func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				delete(a.taking, r.place())
			}()
			limited, cancel := context.WithTimeout(work, callTimeout)
			defer cancel()
			if err := a.transport(r.Consumer).Retake(limited, r.Topic, r.Partition); err != nil {
				a.cfg.Log.Debug("a moved position is not taken up yet", "consumer", r.Consumer, "topic", r.Topic, "partition", r.Partition, "error", err)
			}
		})
	}
}

func (a *Agent) enter(id int64, c *command) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.acting[id] != nil {
		return false
	}
	a.acting[id] = c
	return true
}

func (a *Agent) exit(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.acting, id)
}

// report returns what this process knows of the partition of a command, or nil if
// it does not own it.
func (a *Agent) report(c *command) *Report {
	for _, r := range a.Local() {
		if r.Consumer == c.consumer && r.Topic == c.topic && r.Partition == c.partition {
			return &r
		}
	}
	return nil
}

// begin carries a command out.
func (a *Agent) begin(work context.Context, c *command) {
	if !a.enter(c.id, c) {
		return
	}
	switch c.action {
	case ActionSeek:
		a.work.Go(func() {
			limited, cancel := context.WithDeadline(work, c.until)
			defer cancel()
			err := a.transport(c.consumer).Seek(limited, c.topic, c.partition, c.offset)
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("the delivery in flight did not end in time")
			}
			a.finish(work, c, err)
		})
	case ActionDeadLetter:
		err := a.runtime.OrderDeadLetter(c.consumer, pipeline.DeadLetterOrder{
			Partition: c.partition, Offset: c.offset, Actor: c.actor, Reason: c.reason, Until: c.until,
			InTx: func(ctx context.Context, tx pipeline.StoreTx) error {
				tag, err := tx.Exec(ctx, finishSQL, c.id, string(Done), "", a.cfg.Instance)
				if err == nil && tag.RowsAffected() == 0 {
					err = fmt.Errorf("dead-letter offset %d: %w", c.offset, pipeline.ErrOrderLapsed)
				}
				return err
			},
			// Called with locks of the pipeline held.
			Done: func(err error) { a.work.Go(func() { a.finish(work, c, err) }) },
		})
		if err != nil {
			a.work.Go(func() { a.finish(work, c, err) })
			return
		}
		a.mu.Lock()
		c.ordered = true
		a.mu.Unlock()
	default:
		a.work.Go(func() { a.finish(work, c, a.retry(c)) })
	}
}

// retry ends the backoff of a stalled partition.
func (a *Agent) retry(c *command) error {
	switch r := a.report(c); {
	case r == nil || r.State == Running:
		return ErrNotStalled
	case r.State == OffsetProblem && r.NextTry == nil:
		return ErrNeedsSeek
	}
	return a.transport(c.consumer).RetryNow(c.topic, c.partition)
}

// press has the partitions tried at once for which there are orders. A try that was
// under way when the order came may have failed since.
func (a *Agent) press() {
	a.mu.Lock()
	var ordered []*command
	for _, c := range a.acting {
		if c.ordered {
			ordered = append(ordered, c)
		}
	}
	a.mu.Unlock()
	for _, c := range ordered {
		if r := a.report(c); r != nil && r.NextTry != nil {
			_ = a.transport(c.consumer).RetryNow(c.topic, c.partition) // lost: then the order lapses
		}
	}
}

// finish writes how a command has ended, and repeats that until it is written or
// the command has lapsed.
func (a *Agent) finish(work context.Context, c *command, err error) {
	defer a.exit(c.id)
	outcome, detail := Done, ""
	if err != nil {
		outcome, detail = Refused, truncate(storable(err.Error()))
	}
	for time.Now().Before(c.until) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(work), callTimeout)
		_, err := a.cfg.Pool.Exec(limited, finishSQL, c.id, string(outcome), detail, a.cfg.Instance)
		cancel()
		if err == nil {
			a.cfg.Log.Info("consumer action ended", "consumer", c.consumer, "action", string(c.action), "topic", c.topic,
				"partition", c.partition, "actor", c.actor, "outcome", string(outcome), "detail", detail)
			a.cfg.Signals.Wake(WakeActions)
			return
		}
		select {
		case <-work.Done():
			return
		case <-time.After(a.cfg.Poll):
		}
	}
}
