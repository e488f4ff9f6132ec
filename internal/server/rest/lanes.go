package rest

import (
	"context"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/internal/postgres"
)

// Lane is a key of a consumer ordered per key that waits behind a dead letter.
type Lane struct {
	ID           int64            `json:"id"`
	State        parking.State    `json:"state" doc:"BLOCKED by an OPEN dead letter, DRAINING, or STALLED by a fault that is not the event's" example:"BLOCKED"`
	Consumer     string           `json:"consumer"`
	Topic        string           `json:"topic" doc:"By its name at the broker"`
	Partition    int32            `json:"partition"`
	Key          *DeadLetterBytes `json:"key"`
	DeadLetterID string           `json:"dead_letter_id,omitempty" format:"uuid" doc:"What it waits for; missing once that is settled"`
	Parked       int64            `json:"parked" doc:"How many events wait, a redriven dead letter included"`
	OldestAt     *time.Time       `json:"oldest_parked_at,omitempty" doc:"Since when the first of them waits"`
	OpenedAt     time.Time        `json:"opened_at"`
	Tries        int              `json:"tries,omitempty" doc:"Of a lane that is STALLED"`
	NextTryAt    *time.Time       `json:"next_try_at,omitempty" doc:"Of a lane that is STALLED"`
	Error        string           `json:"error,omitempty" doc:"Of a lane that is STALLED"`
}

// LaneList is one page of lanes.
type LaneList struct {
	Lanes         []Lane `json:"lanes"`
	NextPageToken string `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters; missing on the last"`
}

type listLanesInput struct {
	Consumer  string `query:"consumer" maxLength:"100"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"64" doc:"The next_page_token of the page before, with the same filters"`
}

type listLanesOutput struct{ Body LaneList }

func fromLane(l parking.Lane) Lane {
	out := Lane{
		ID: l.ID, State: l.State, Consumer: l.Consumer, Topic: l.Topic, Partition: l.Partition, Key: bytesOf(l.Key),
		Parked: l.Parked, OpenedAt: l.OpenedAt.UTC(),
	}
	if l.Head != nil {
		out.DeadLetterID = l.Head.String()
	}
	if l.OldestAt != nil {
		at := l.OldestAt.UTC()
		out.OldestAt = &at
	}
	if l.State == parking.Stalled {
		at := l.NextTry.UTC()
		out.Tries, out.NextTryAt, out.Error = l.Tries, &at, l.Error
	}
	return out
}

func (a *API) listLanes(ctx context.Context, in *listLanesInput) (*listLanesOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	if err := checkText("consumer", in.Consumer); err != nil {
		return nil, err
	}
	f := parking.Filter{Consumer: in.Consumer, Limit: in.PageSize + 1}
	if in.PageToken != "" {
		after, err := strconv.ParseInt(in.PageToken, 10, 64)
		if err != nil || after < 0 {
			return nil, postgres.ErrPageToken
		}
		f.After = after
	}
	lanes, err := a.deps.DeadLetters.Lanes(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listLanesOutput{}
	if len(lanes) > in.PageSize {
		lanes = lanes[:in.PageSize]
		out.Body.NextPageToken = strconv.FormatInt(lanes[in.PageSize-1].ID, 10)
	}
	out.Body.Lanes = make([]Lane, len(lanes))
	for i, l := range lanes {
		out.Body.Lanes[i] = fromLane(l)
	}
	return out, nil
}

func listLanesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-lanes", Summary: "List the keys that wait behind a dead letter", Tags: []string{tagDeadLetters},
		Description: "Of consumers that are ordered per key, in the order in which they began to wait. " +
			"A lane moves when its dead letter is redriven or discarded, and is gone when it is empty.",
		Errors: []int{400, 503},
	}
}
