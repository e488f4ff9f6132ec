package rest

import (
	"time"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/topics"
)

// ReplayRequest is the body of POST /v1/replays.
type ReplayRequest struct {
	Source  string               `json:"source,omitempty" enum:"event_log,kafka" default:"event_log" doc:"Where to read: the event log, or the topics themselves"`
	Filter  *ReplayFilterRequest `json:"filter,omitempty" doc:"What to replay; without it, all of the target's topic"`
	Target  ReplayTarget         `json:"target" doc:"To whom: exactly one of topic and consumer"`
	Rate    float64              `json:"rate,omitempty" minimum:"0.01" maximum:"1000000" doc:"At most so many events per second; as fast as it goes without it"`
	Max     int64                `json:"max,omitempty" minimum:"1" doc:"End when so many are published; all without it"`
	Confirm bool                 `json:"confirm,omitempty" doc:"It may be about more events than replay.confirm_above says"`
	DryRun  bool                 `json:"dry_run,omitempty" doc:"Say what would happen, and do nothing"`
	Force   bool                 `json:"force,omitempty" doc:"Also to a topic that carries work, or to a consumer that drops replays; needs a reason"`
	Reason  string               `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// ReplayTarget is to whom a replay is directed.
type ReplayTarget struct {
	Topic    string `json:"topic,omitempty" doc:"By its name at the broker: every consumer of it that opts in to replays acts"`
	Consumer string `json:"consumer,omitempty" doc:"The only consumer that is to act, on its own topic"`
}

// ReplayFilterRequest chooses what to replay. All that is said has to hold; what is
// left out chooses all.
type ReplayFilterRequest struct {
	Topics     []string        `json:"topics,omitempty" maxItems:"1000" doc:"Read these, by their names at the broker; without them, the topic of the target"`
	Types      []string        `json:"types,omitempty" maxItems:"1000" doc:"CloudEvents types; one that ends in * stands for all that begin so"`
	Sources    []string        `json:"sources,omitempty" maxItems:"1000" doc:"CloudEvents sources"`
	Subjects   []string        `json:"subjects,omitempty" maxItems:"1000" doc:"CloudEvents subjects; of an event without one, its key counts"`
	Keys       []string        `json:"keys,omitempty" maxItems:"1000" doc:"Keys of records"`
	KeysBase64 [][]byte        `json:"keys_base64,omitempty" maxItems:"1000" doc:"Keys of records that are no text"`
	After      *time.Time      `json:"after,omitempty" doc:"Of this time or later: of the event log the event's own time, of Kafka the record's"`
	Before     *time.Time      `json:"before,omitempty" doc:"Before this time"`
	Offsets    []ReplayStretch `json:"offsets,omitempty" maxItems:"1000" doc:"Of Kafka, in place of times: only these parts of partitions"`
}

// ReplayStretch is a part of a partition.
type ReplayStretch struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition" minimum:"0"`
	From      int64  `json:"from" minimum:"0"`
	To        int64  `json:"to,omitempty" doc:"Below this offset; to the end without it"`
}

// ReplayFilterWire is the filter of a replay, with its topics.
type ReplayFilterWire ReplayFilterRequest

// ReplayRateRequest is the body of PATCH /v1/replays/{id}.
type ReplayRateRequest struct {
	Rate   *float64 `json:"rate" minimum:"0" doc:"At most so many events per second from now on; 0: as fast as it goes"`
	Reason string   `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// ControlReplayRequest is the body of a change of a replay. It may be missing.
type ControlReplayRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// Replay is a replay session.
type Replay struct {
	ID     string           `json:"id" format:"uuid"`
	State  replay.State     `json:"state" doc:"PENDING (it waits for its turn), RUNNING, PAUSED, STOPPED (it cannot go on, see note), DONE or CANCELLED" example:"RUNNING"`
	Source string           `json:"source"`
	Filter ReplayFilterWire `json:"filter"`
	Target ReplayTarget     `json:"target"`
	Rate   float64          `json:"rate,omitempty" doc:"Events per second at most"`
	Max    int64            `json:"max,omitempty"`
	Forced bool             `json:"forced,omitempty" doc:"It was let through against advice: see actions"`
	Actor  string           `json:"actor"`
	Reason string           `json:"reason,omitempty"`

	Progress  float64 `json:"progress" doc:"From 0 to 1, as far as that can be told"`
	Total     *int64  `json:"total,omitempty" doc:"How many events it is about; missing while they are not counted"`
	TotalMost bool    `json:"total_at_most,omitempty" doc:"There may be fewer than total: a topic does not tell what the filter chooses"`
	Published int64   `json:"published" doc:"What was published twice because a process died counts once"`
	Skipped   int64   `json:"skipped,omitempty" doc:"Read and not chosen by the filter"`
	Refused   int64   `json:"refused,omitempty" doc:"What the broker did not take"`
	Speed     float64 `json:"speed,omitempty" doc:"Events per second of late"`
	LeftS     float64 `json:"left_s,omitempty" doc:"About how many seconds it still takes"`
	Note      string  `json:"note,omitempty" doc:"Why it stopped, or what it waits for"`

	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`

	Consumers  []ReplayConsumer  `json:"consumers,omitempty" doc:"Who reads the target's topic, and who acts; not in lists"`
	Refusals   []ReplayRefusal   `json:"refusals,omitempty" doc:"The first that the broker did not take; not in lists"`
	Partitions []ReplayPartition `json:"partitions,omitempty" doc:"Where it is in each partition that it reads; not in lists"`
	Actions    []ReplayAction    `json:"actions,omitempty" doc:"Who did what about it; not in lists"`
}

// ReplayConsumer is a consumer of the target's topic.
type ReplayConsumer struct {
	Name string `json:"name"`
	Acts bool   `json:"acts" doc:"Whether it acts on what is replayed; otherwise it drops it"`
	Why  string `json:"why,omitempty" doc:"Why it does not"`
}

// ReplayRefusal is a record that the broker did not take.
type ReplayRefusal struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Problem   string `json:"problem"`
}

// ReplayPartition is how far a replay is in a partition that it reads.
type ReplayPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	Next      int64  `json:"next"`
	To        int64  `json:"to" doc:"Where it ends: what was published after it was made is no part of it"`
}

// ReplayAction is what somebody did about a replay.
type ReplayAction struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action" doc:"create, pause, resume, cancel or rate"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// ReplayList is one page of replays.
type ReplayList struct {
	Replays       []Replay `json:"replays"`
	NextPageToken string   `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same states; missing on the last"`
}

// ReplayPlan is the answer to a dry run.
type ReplayPlan struct {
	DryRun    bool             `json:"dry_run"`
	Target    ReplayTarget     `json:"target"`
	Filter    ReplayFilterWire `json:"filter"`
	Matched   int64            `json:"matched" doc:"How many events it would be about"`
	AtLeast   bool             `json:"matched_at_least,omitempty" doc:"There are more than were counted"`
	AtMost    bool             `json:"matched_at_most,omitempty" doc:"There may be fewer: a topic does not tell what the filter chooses"`
	Sample    []ReplaySample   `json:"sample" doc:"The first that would be published"`
	Consumers []ReplayConsumer `json:"consumers" doc:"Who reads the target's topic, and who would act"`
	Refused   []ReplayObstacle `json:"refused" doc:"Why such a replay would not be made; empty if it would"`
	Notices   []string         `json:"notices,omitempty"`
}

// ReplayObstacle is a reason not to make a replay.
type ReplayObstacle struct {
	Code     string `json:"code" example:"work_topic"`
	Message  string `json:"message"`
	Forcible bool   `json:"forcible,omitempty" doc:"force gets around it"`
}

// ReplaySample is a record that would be published.
type ReplaySample struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Offset    int64            `json:"offset"`
	Time      time.Time        `json:"time" doc:"The record's"`
	Key       *DeadLetterBytes `json:"key,omitempty"`
	Type      string           `json:"type,omitempty" doc:"Missing where the record is no event"`
	EventID   string           `json:"event_id,omitempty"`
	Source    string           `json:"source,omitempty"`
	Bytes     int              `json:"bytes" doc:"Of the value"`
}

// request is what the body asks for.
func (in ReplayRequest) request() replay.Request {
	r := replay.Request{
		Source: replay.SourceName(in.Source), Topic: in.Target.Topic, Consumer: in.Target.Consumer,
		Rate: in.Rate, Max: in.Max, Confirm: in.Confirm, Force: in.Force, Reason: in.Reason,
	}
	if r.Source == "" {
		r.Source = replay.EventLog
	}
	if in.Filter == nil {
		return r
	}
	f := in.Filter
	r.Filter = replay.Filter{Topics: f.Topics, Types: f.Types, Sources: f.Sources, Subjects: f.Subjects}
	for _, k := range f.Keys {
		r.Filter.Keys = append(r.Filter.Keys, []byte(k))
	}
	r.Filter.Keys = append(r.Filter.Keys, f.KeysBase64...)
	if f.After != nil {
		r.Filter.After = *f.After
	}
	if f.Before != nil {
		r.Filter.Before = *f.Before
	}
	for _, s := range f.Offsets {
		r.Filter.Offsets = append(r.Filter.Offsets, replay.Stretch(s))
	}
	return r
}

func fromReplayFilter(f replay.Filter) ReplayFilterWire {
	w := ReplayFilterWire{
		Topics: f.Topics, Types: f.Types, Sources: f.Sources, Subjects: f.Subjects, After: moment(f.After), Before: moment(f.Before),
	}
	for _, k := range f.Keys {
		if b := bytesOf(k); b != nil && b.Text != nil {
			w.Keys = append(w.Keys, *b.Text)
		} else {
			w.KeysBase64 = append(w.KeysBase64, k)
		}
	}
	for _, s := range f.Offsets {
		w.Offsets = append(w.Offsets, ReplayStretch(s))
	}
	return w
}

// fromReplay is a replay as lists show it.
func fromReplay(s replay.Session) Replay {
	out := Replay{
		ID: s.ID.String(), State: s.State, Source: string(s.Source), Filter: fromReplayFilter(s.Filter),
		Target: ReplayTarget(s.Target), Rate: s.Rate, Max: s.Max, Forced: s.Forced, Actor: s.Actor, Reason: s.Reason,
		Progress: s.Progress(), Total: s.Total, TotalMost: !s.Exact && s.Total != nil, Published: s.Published, Skipped: s.Skipped, Refused: s.Refused,
		Speed: s.Speed, Note: s.Note, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		StartedAt: moment(s.StartedAt), FinishedAt: moment(s.FinishedAt),
	}
	if left, known := s.Left(); known {
		out.LeftS = left.Seconds()
	}
	return out
}

// fromWholeReplay is a replay with all that is known of it.
func fromWholeReplay(s replay.Session, consumers []replay.Audience) Replay {
	out := fromReplay(s)
	out.Consumers = fromAudience(consumers)
	for _, r := range s.Refusals {
		out.Refusals = append(out.Refusals, ReplayRefusal(r))
	}
	for _, w := range s.Cursor {
		p := ReplayPartition{Topic: w.Topic, Partition: w.Partition.Partition, From: w.From, Next: w.Next, To: w.To}
		if w.Over {
			p.Next = w.To
		}
		out.Partitions = append(out.Partitions, p)
	}
	for _, a := range s.Actions {
		out.Actions = append(out.Actions, ReplayAction{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason, Detail: a.Detail})
	}
	return out
}

func fromAudience(list []replay.Audience) []ReplayConsumer {
	out := make([]ReplayConsumer, len(list))
	for i, c := range list {
		out[i] = ReplayConsumer{Name: c.Consumer, Acts: c.Acts, Why: c.Why}
	}
	return out
}

func fromPlan(p replay.Plan) ReplayPlan {
	out := ReplayPlan{
		DryRun: true, Target: ReplayTarget(p.Target), Filter: fromReplayFilter(p.Filter), Matched: p.Matched, AtLeast: p.AtLeast, AtMost: p.AtMost,
		Sample: make([]ReplaySample, len(p.Sample)), Consumers: fromAudience(p.Consumers), Refused: make([]ReplayObstacle, len(p.Refusals)),
		Notices: p.Notices,
	}
	for i, r := range p.Refusals {
		out.Refused[i] = ReplayObstacle(r)
	}
	for i, r := range p.Sample {
		s := ReplaySample{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp.UTC(), Key: bytesOf(r.Key), Bytes: len(r.Value)}
		if env, err := topics.DecodeRecord(r); err == nil {
			s.Type, s.EventID, s.Source = env.Type, env.ID, env.Source
		}
		out.Sample[i] = s
	}
	return out
}
