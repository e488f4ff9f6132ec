package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/handlers/orchestrator"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/sagas"
)

// Saga adds a saga: its definition is stored at the start, a changed one as a new version,
// and the steps that are the program's own are taken by it. The constructor returns a
// sagas.Saga, with an error or without, and may ask for what that of a Consumer may, and
// for a sagas.Starter.
func Saga(constructor any) Option {
	return func(o *options) {
		if !o.sagas {
			o.sagas = true
			o.extra = append(o.extra, fx.Invoke(defineSagas))
		}
		o.extra = append(o.extra, fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"sagas"`))))
	}
}

// Participant adds a participant of sagas that others have defined. The constructor
// returns a sagas.Participant, with an error or without.
func Participant(constructor any) Option {
	return func(o *options) {
		o.extra = append(o.extra, fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"participants"`))))
	}
}

// sagasModule is the orchestrator: it hears the replies of participants.
var sagasModule = fx.Module("sagas", asConsumer(newSagaReplies))

func newSagaReplies(e *engine.Engine, log *slog.Logger) pipeline.Consumer {
	return orchestrator.NewConsumer(e, log)
}

// newSagaTopics is how the engine sends commands and tells of sagas; nil without Kafka.
func newSagaTopics(cfg configs.Config) engine.Sagas {
	if cfg.Brokerless() {
		return nil
	}
	return engine.SagaTopics{}
}

// participantsModule makes the consumers of what programs have added.
var participantsModule = fx.Module("participants", asConsumers(newParticipants))

// sagaParams are what programs have added.
type sagaParams struct {
	fx.In

	Sagas        []sagas.Saga        `group:"sagas"`
	Participants []sagas.Participant `group:"participants"`
}

func newParticipants(p sagaParams) ([]pipeline.Consumer, error) {
	var consumers []pipeline.Consumer
	var errs []error
	for _, s := range p.Sagas {
		errs = append(errs, s.Validate())
		consumers = append(consumers, s.Consumers()...)
	}
	for _, participant := range p.Participants {
		errs = append(errs, participant.Validate())
		consumers = append(consumers, participant.Consumer())
	}
	return consumers, errors.Join(errs...)
}

// defineSagas stores the definitions of the sagas before the first of their commands can
// come. The one that is stored last is what new instances run.
func defineSagas(lc fx.Lifecycle, p sagaParams, st *definitions.Store, log *slog.Logger) {
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		for _, s := range p.Sagas {
			text, err := s.Document()
			if err != nil {
				return err
			}
			stored, created, err := st.Put(ctx, text, "saga", "program")
			if err != nil {
				return fmt.Errorf("define saga %q: %w", s.Name(), err)
			}
			if created {
				log.InfoContext(ctx, "saga is defined", "saga", s.Name(), "version", stored.Version)
			}
		}
		return nil
	}))
}

// starter implements sagas.Starter.
type starter struct{ engine *engine.Engine }

func newStarter(e *engine.Engine) sagas.Starter { return starter{e} }

// Start implements sagas.Starter.
func (s starter) Start(ctx context.Context, r sagas.Start) (string, error) {
	state, err := json.Marshal(r.State)
	if err != nil {
		return "", fmt.Errorf("start saga %s: write its state: %w", r.Saga, err)
	}
	if r.State == nil {
		state = nil
	}
	request := engine.StartRequest{
		DefinitionID: r.Saga, Variables: state, BusinessKey: r.BusinessKey, Priority: r.Priority,
		Tenant: r.Tenant, User: r.User, CorrelationID: r.CorrelationID,
	}
	if r.ID != "" {
		if request.ID, err = uuid.Parse(r.ID); err != nil {
			return "", fmt.Errorf("start saga %s: the id %q is no UUID: %w", r.Saga, r.ID, err)
		}
	}
	i, err := s.engine.Start(ctx, request)
	if err != nil {
		return "", fmt.Errorf("start saga %s: %w", r.Saga, err)
	}
	return i.ID.String(), nil
}
