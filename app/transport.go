package app

import (
	"context"
	"log/slog"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	letterfiler "github.com/millrace/millrace/handlers/deadletter"
	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// transportModule connects consumers and publishers to Kafka.
var transportModule = fx.Module("transport",
	fx.Provide(newRecords, newPublisher, newLetterPublisher, newConsumerAgent, newRouter),
)

// newRecords is the one producer of the process.
func newRecords(lc fx.Lifecycle, c *connections, reg prometheus.Registerer) (*kafka.Publisher, error) {
	p, err := kafka.NewPublisher(c.kafka, kafka.PublisherConfig{Registerer: reg})
	if err != nil {
		return nil, err
	}
	c.unused = append(c.unused, p.Close)
	lc.Append(fx.StopHook(p.Close))
	return p, nil
}

func newPublisher(records *kafka.Publisher, cfg configs.Config) *pipeline.Publisher {
	return pipeline.NewPublisher(records, cfg.TopicNaming())
}

// newLetterPublisher publishes records that may be letters, for relay and consumers.
func newLetterPublisher(records *kafka.Publisher, pool *pgxpool.Pool) *deadletter.Publisher {
	return deadletter.NewPublisher(records, pool, kafka.IsTooLarge)
}

// routerParams gather what the router needs, the consumers of all roles and of
// the user among it. Their order is random and must not matter.
type routerParams struct {
	fx.In

	Config    configs.Config
	Conns     *connections
	Pool      *pgxpool.Pool
	Signals   *postgres.Signals
	Handover  *outbox.Handover
	Letters   *deadletter.Publisher
	Log       *slog.Logger
	Registry  prometheus.Registerer
	Agent     *consumers.Agent
	Consumers []pipeline.Consumer `group:"consumers"`
}

func newRouter(lc fx.Lifecycle, p routerParams) (*pipeline.Router, error) {
	lanes, stop := p.Signals.Subscribe(parking.WakeName)
	lc.Append(fx.StopHook(stop))
	effects := inbox.New(p.Pool, func() { p.Signals.Wake(outbox.WakeName) })
	effects.HandOver(p.Handover)
	router, err := pipeline.NewRouter(pipeline.RouterConfig{
		Subscribe: func(sub pipeline.Subscription) (message.Subscriber, error) {
			return subscribe(p, sub)
		},
		Store:          effects,
		LaneWake:       lanes,
		DeadLetters:    p.Letters,
		Naming:         p.Config.TopicNaming(),
		Infrastructure: []func(error) bool{isInfrastructure},
		Registerer:     p.Registry,
		Log:            p.Log,
	})
	if err != nil {
		return nil, err
	}
	p.Conns.unused = append(p.Conns.unused, router.Close)
	for _, c := range append(slices.Clone(p.Consumers), letterFilers(p.Config, p.Consumers)...) {
		if err := router.Add(c); err != nil {
			return nil, err
		}
	}
	return router, nil
}

// letterFilers are the consumers that file the letters of further dead-letter
// topics: those that consumers of this process name, and those of the
// configuration. Wherever they run they share their groups.
func letterFilers(cfg configs.Config, consumers []pipeline.Consumer) []pipeline.Consumer {
	var further []topics.Topic
	if cfg.HasRole(configs.RoleMaintenance) {
		for _, name := range cfg.DeadLetters.Topics {
			further = append(further, cfg.TopicNaming().Logical(name))
		}
	}
	return letterfiler.Others(consumers, further...)
}

// subscribe joins the group of one consumer.
func subscribe(p routerParams, sub pipeline.Subscription) (message.Subscriber, error) {
	from := kafka.StartEarliest
	if sub.From == pipeline.Latest {
		from = kafka.StartLatest
	}
	cfg := kafka.SubscriberConfig{
		Group: sub.Group, BatchSize: sub.BatchSize, Gather: sub.Gather, StartFrom: from, Registerer: p.Registry, Logger: p.Log,
		Hooks:    kafka.Hooks{Assigned: sub.Assigned, Fenced: isFenced},
		Observer: changes{p.Agent},
	}
	if released := sub.Released; released != nil {
		cfg.Hooks.Revoked = func(_ context.Context, _ string, partition int32, _ int64, _ bool) { released(partition) }
	}
	s, err := newSubscriber(p.Config.Kafka.Driver, p.Conns.kafka, sub, cfg)
	if err != nil {
		return nil, err
	}
	p.Agent.Attach(sub.Consumer, consumerTransport{s})
	return s, nil
}

// runRouter consumes from the start of the program, once every consumer is
// subscribed, to its stop, when what is in flight is drained.
func runRouter(lc fx.Lifecycle, l *loops, router *pipeline.Router, p routerParams) {
	if len(p.Consumers) == 0 {
		return
	}
	// Before anything is consumed, and until nothing is any more.
	lc.Append(fx.StartHook(func(ctx context.Context) error { return p.Agent.Start(ctx, router) }))
	l.run("consumer reports", p.Agent.Run)
	l.run("consumers", router.Run)
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		select {
		case <-router.Running():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
}
