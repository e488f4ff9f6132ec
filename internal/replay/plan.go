package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// Plan is what a request would do.
type Plan struct {
	Target Target
	// Filter is that of the request, with its topics.
	Filter Filter
	// Matched is how many events it is about, as far as it was counted: exactly, or at
	// least (AtLeast), or, of Kafka, at most (AtMost).
	Matched         int64
	AtLeast, AtMost bool
	// Sample are the first records that would be published, as they lie in the source.
	Sample []topics.Record
	// Consumers are those of the target's topic, and what each would do.
	Consumers []Audience
	// Refusals say why a session would not be made, or would have to be forced.
	Refusals []Refusal
	// Notices say what is odd although a session can be made.
	Notices []string

	cursor Cursor
}

// Audience is a consumer of the target's topic.
type Audience struct {
	Consumer string
	// Acts says whether it acts on the session's events, Why not otherwise.
	Acts bool
	Why  string
}

// Refusal is a reason not to make a session.
type Refusal struct {
	Code, Message string
	// Forcible ones do not count against a request with Force.
	Forcible bool
}

// The codes of refusals.
const (
	CodeWorkTopic       = "work_topic"
	CodeDeadLetterTopic = "dead_letter_topic"
	CodeInternalTopic   = "internal_topic"
	CodeTopicMissing    = "topic_missing"
	CodeConsumerUnknown = "consumer_unknown"
	CodeConsumerDrops   = "consumer_drops_replays"
	CodeTooLarge        = "too_large"
	CodeNothing         = "nothing_selected"
)

// RefusedError is why a session was not made.
type RefusedError struct{ Refusals []Refusal }

// Error implements error.
func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		texts[i] = r.Message
	}
	return "replay: " + strings.Join(texts, "; ")
}

// standing are the refusals that the request does not get around.
func (p Plan) standing(r Request) []Refusal {
	return slices.DeleteFunc(slices.Clone(p.Refusals), func(x Refusal) bool { return x.Forcible && r.Force })
}

const (
	// sampleSize is how many records a dry run shows, sampleReads how many batches it
	// reads for them at most.
	sampleSize  = 10
	sampleReads = 50
	// dryCount is how far a dry run counts.
	dryCount = 10_000_000
)

// DryRun says what a request would do, and does nothing. It fails only if it cannot
// be told; what would be refused is in the plan.
func (s *Store) DryRun(ctx context.Context, r Request) (Plan, error) {
	if errs := r.Check(); len(errs) > 0 {
		return Plan{}, errors.Join(errs...)
	}
	p, err := s.plan(ctx, r, dryCount)
	if err != nil || p.cursor == nil {
		return p, err
	}
	p.Sample, err = s.sample(ctx, r, p)
	if err == nil && len(p.Sample) < sampleSize && len(p.Sample) > 0 && p.AtMost {
		p.Notices = append(p.Notices, fmt.Sprintf("only %d of the first records are chosen", len(p.Sample)))
	}
	return p, err
}

// sample reads the first records that would be published.
func (s *Store) sample(ctx context.Context, r Request, p Plan) ([]topics.Record, error) {
	within, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	feed, err := s.cfg.Sources[r.Source].Open(within, p.Filter, p.cursor)
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	var sample []topics.Record
	m := newMerge(feed, p.cursor)
	for range sampleReads {
		b, err := m.nextBatch(within, sampleSize-len(sample))
		if err != nil && within.Err() == nil {
			return nil, err
		}
		if err != nil {
			break // what there is of it will do
		}
		sample = append(sample, b.records...)
		if b.over || len(sample) >= sampleSize || within.Err() != nil {
			break
		}
	}
	return sample, ctx.Err()
}

// plan finds out what a request would do, and counts up to most events.
func (s *Store) plan(ctx context.Context, r Request, most int64) (Plan, error) {
	p := Plan{Target: Target{r.Topic, r.Consumer}, Filter: r.Filter}
	refuse := func(code string, forcible bool, format string, args ...any) {
		p.Refusals = append(p.Refusals, Refusal{code, fmt.Sprintf(format, args...), forcible})
	}
	if err := s.aim(ctx, &p, refuse); err != nil {
		return p, err
	}
	if p.Target.Topic == "" {
		return p, nil
	}
	if len(p.Filter.Topics) == 0 {
		p.Filter.Topics = topicsOf(p.Filter.Offsets, p.Target.Topic)
	}
	p.Filter.Topics = slices.Compact(slices.Sorted(slices.Values(p.Filter.Topics)))
	cursor, err := s.cfg.Sources[r.Source].Begin(ctx, p.Filter)
	if errors.Is(err, ErrNothingThere) {
		refuse(CodeNothing, false, "%s", err)
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("replay: find out what there is: %w", err)
	}
	p.cursor = cursor
	if r.Source == EventLog {
		if err := s.horizon(ctx, &p); err != nil {
			return p, err
		}
	}
	return p, s.measure(ctx, r, most, &p, refuse)
}

// horizon says where the event log does not go back as far as is asked for.
func (s *Store) horizon(ctx context.Context, p *Plan) error {
	for _, topic := range p.Filter.Topics {
		since, known, err := eventlog.Horizon(ctx, s.cfg.Pool, topic)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if known && since.After(p.Filter.After) {
			p.Notices = append(p.Notices, fmt.Sprintf("of %s the event log is complete only since %s: earlier events may be missing",
				topic, since.UTC().Format(time.RFC3339)))
		}
	}
	return nil
}

// topicsOf are the topics of stretches, or the one that is meant without any.
func topicsOf(stretches []Stretch, otherwise string) []string {
	if len(stretches) == 0 {
		return []string{otherwise}
	}
	names := make([]string, len(stretches))
	for i, s := range stretches {
		names[i] = s.Topic
	}
	return names
}

// measure counts, and refuses what is empty, or large and not confirmed.
func (s *Store) measure(ctx context.Context, r Request, most int64, p *Plan, refuse func(string, bool, string, ...any)) error {
	most = max(most, s.cfg.ConfirmAbove+1)
	within, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	n, exact, err := s.cfg.Sources[r.Source].Count(within, p.Filter, p.cursor, most)
	switch {
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		n, exact = 0, true // it lasts too long to count
		p.AtLeast = true
	case err != nil:
		return fmt.Errorf("replay: count: %w", err)
	default:
		p.AtLeast = exact && n >= most
	}
	p.Matched, p.AtMost = n, !exact
	large := p.AtLeast || n > s.cfg.ConfirmAbove
	switch {
	case n == 0 && !p.AtLeast:
		refuse(CodeNothing, false, "nothing is selected")
	case large && !r.Confirm && (r.Max == 0 || r.Max > s.cfg.ConfirmAbove):
		refuse(CodeTooLarge, false, "it may be about more than %d events: confirm that, or bound it with a maximum", s.cfg.ConfirmAbove)
	}
	return nil
}

// aim finds the target and who listens there.
func (s *Store) aim(ctx context.Context, p *Plan, refuse func(string, bool, string, ...any)) error {
	if p.Target.Consumer != "" {
		err := s.cfg.Pool.QueryRow(ctx, `SELECT topic FROM consumers WHERE name = $1`, p.Target.Consumer).Scan(&p.Target.Topic)
		if errors.Is(err, pgx.ErrNoRows) {
			refuse(CodeConsumerUnknown, false, "there is no consumer %s: millrace consumers list, or GET /v1/consumers, tells which there are", p.Target.Consumer)
			return nil
		}
		if err != nil {
			return fmt.Errorf("replay: find consumer %s: %w", p.Target.Consumer, err)
		}
	}
	topic := p.Target.Topic
	if strings.HasPrefix(topic, "__") {
		refuse(CodeInternalTopic, false, "topic %s is the broker's own", topic)
		return nil
	}
	live, err := s.cfg.Broker.Topics(ctx, topic)
	if err != nil {
		return fmt.Errorf("replay: find topic %s: %w", topic, err)
	}
	if _, exists := live[topic]; !exists {
		refuse(CodeTopicMissing, false, "there is no topic %s: a replay makes none", topic)
	}
	if s.cfg.Work(topic) {
		refuse(CodeWorkTopic, true, "topic %s carries work: its records ask for something to be done, and a replay must not ask again", topic)
	}
	if s.cfg.DeadLetters(topic) {
		refuse(CodeDeadLetterTopic, true, "topic %s carries dead letters: a redrive gives them to their consumers again", topic)
	}
	if p.Consumers, err = s.Audience(ctx, p.Target); err != nil {
		return err
	}
	return s.hear(p, refuse)
}

// hear says what it means who listens and who does not.
func (s *Store) hear(p *Plan, refuse func(string, bool, string, ...any)) error {
	acting := 0
	for _, a := range p.Consumers {
		if a.Acts {
			acting++
		}
		if a.Consumer == p.Target.Consumer && !a.Acts {
			refuse(CodeConsumerDrops, true, "consumer %s %s: it would drop every event, forced or not", a.Consumer, a.Why)
		}
	}
	if acting == 0 && p.Target.Consumer == "" {
		p.Notices = append(p.Notices, fmt.Sprintf("no consumer of %s that is known here acts on replays: only others would see them", p.Target.Topic))
	}
	return nil
}

// Audience returns the consumers of the target's topic, by name, and what each does
// with replayed events that are directed there.
func (s *Store) Audience(ctx context.Context, t Target) ([]Audience, error) {
	rows, err := s.cfg.Pool.Query(ctx, `SELECT name, replay FROM consumers WHERE topic = $1 ORDER BY name`, t.Topic)
	var all []Audience
	var name string
	var opted *bool
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name, &opted}, func() error {
			all = append(all, audience(t, name, opted))
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("replay: list the consumers of %s: %w", t.Topic, err)
	}
	return all, nil
}

func audience(t Target, name string, opted *bool) Audience {
	switch {
	case t.Consumer != "" && t.Consumer != name:
		return Audience{name, false, "is not the target"}
	case opted == nil:
		return Audience{name, false, "has not said whether it acts on replays, since no process of this version runs it"}
	case !*opted:
		return Audience{name, false, "does not opt in to replays"}
	}
	return Audience{Consumer: name, Acts: true}
}
