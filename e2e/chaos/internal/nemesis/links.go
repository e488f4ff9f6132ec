package nemesis

import (
	"context"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

func linkCases() []Case {
	return []Case{
		{ID: "E1", Title: "connections are slow, narrow, sliced, reset, half-open", Lane: Servers, act: spoilLinks},
		{ID: "E2", Title: "half of the processes cannot reach Kafka for longer than a session", Lane: Servers, act: partition},
	}
}

func spoilLinks(ctx context.Context, l *lane) error {
	for range 2 + l.rng.IntN(2) {
		if ctx.Err() != nil {
			return nil
		}
		link, server := l.link(), []string{world.Kafka, world.Postgres}[l.rng.IntN(2)]
		stream := []string{world.ToServer, world.ToClient}[l.rng.IntN(2)]
		f := []world.Fault{
			world.Latency(stream, l.between(200*time.Millisecond, 2*time.Second)),
			world.Latency(stream, l.between(5*time.Millisecond, 50*time.Millisecond)),
			world.Bandwidth(stream, 32_000),
			world.Slices(stream),
			world.Reset(0.5, l.between(0, 500*time.Millisecond)),
			world.Silence(stream),
		}[l.rng.IntN(6)]
		heal := l.World.Links.Inject(link, server, -1, f)
		l.fault("%s of %s on link %s, %s", f.Type, server, link, f.Stream)
		l.hold(ctx, 2*time.Second, 7*time.Second)
		heal()
		l.hold(ctx, 500*time.Millisecond, 2*time.Second)
	}
	return nil
}

// partition is longer than the session of 11 s: the others take over, and then the
// former owners come back.
func partition(ctx context.Context, l *lane) error {
	link := l.link()
	for _, stream := range []string{world.ToServer, world.ToClient} {
		heal := l.World.Links.Inject(link, world.Kafka, -1, world.Silence(stream))
		defer heal()
	}
	l.fault("link %s does not reach Kafka", link)
	l.hold(ctx, 13*time.Second, 18*time.Second)
	l.note("link %s reaches Kafka again", link)
	return nil
}
