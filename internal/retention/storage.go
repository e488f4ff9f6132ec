package retention

import (
	"context"
	"math"
	"time"
)

const (
	// measureEvery is how often the size of the database is looked at.
	measureEvery = 5 * time.Minute
	// growthMin is for how long growth is watched before anything is said about it,
	// and growthMax for how long at the most: days are dropped as a whole, so less
	// would show nothing but the time since the last one was.
	growthMin = time.Hour
	growthMax = 7 * day
)

// Room tells how many bytes a database of the given size may still grow by. ok is
// false where that is not known.
type Room func(size int64) (free int64, ok bool)

// Limit is the room below a size that somebody has set.
func Limit(bytes int64) Room {
	return func(size int64) (int64, bool) { return max(0, bytes-size), true }
}

// Disk is the room on the file system of a directory on this machine.
func Disk(dir string) Room {
	return func(int64) (int64, bool) { return freeBytes(dir) }
}

// measurement is the size of the database at a time.
type measurement struct {
	at   time.Time
	size int64
}

// growth remembers how large the database was.
type growth struct{ past []measurement }

func (g *growth) add(m measurement) {
	g.past = append(g.past, m)
	for len(g.past) > 2 && m.at.Sub(g.past[1].at) >= growthMax {
		g.past = g.past[1:]
	}
}

// daysUntilFull tells in how many days free bytes are used up, at the average rate
// since the first measurement that counts; infinite when the database does not grow.
// ok is false as long as too little has been seen.
func (g *growth) daysUntilFull(free int64) (left float64, ok bool) {
	if len(g.past) < 2 {
		return 0, false
	}
	first, last := g.past[0], g.past[len(g.past)-1]
	span := last.at.Sub(first.at)
	if span < growthMin {
		return 0, false
	}
	grown := float64(last.size - first.size)
	if grown <= 0 {
		return math.Inf(1), true
	}
	return float64(free) / grown * span.Hours() / 24, true
}

// measure looks at the size of the database, and shows what follows.
func (k *Keeper) measure(ctx context.Context) {
	m := measurement{at: time.Now()}
	if err := k.pool.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&m.size); err != nil {
		if ctx.Err() == nil {
			k.log.WarnContext(ctx, "size of the database was not measured, it will be repeated", "error", err, "in", measureEvery)
		}
		return
	}
	k.growth.add(m)
	k.metrics.bytes.WithLabelValues().Set(float64(m.size))
	if k.cfg.Room == nil {
		return
	}
	free, ok := k.cfg.Room(m.size)
	if !ok {
		k.metrics.free.Reset()
		k.metrics.untilFull.Reset()
		return
	}
	k.metrics.free.WithLabelValues().Set(float64(free))
	if left, ok := k.growth.daysUntilFull(free); ok {
		k.metrics.untilFull.WithLabelValues().Set(left)
	}
}
