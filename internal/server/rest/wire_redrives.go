package rest

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/server/problem"
)

// RedriveOneRequest is the body of the redrive of one letter. It may be missing.
type RedriveOneRequest struct {
	Force  bool   `json:"force,omitempty" doc:"Also when it is not OPEN, or was redriven 5 times"`
	NewID  bool   `json:"new_id,omitempty" doc:"Give the event a new id, so that a consumer that has processed the old one processes it again; needs force"`
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// RedriveRequest is the body of a redrive of several letters: exactly one of
// filter and ids.
type RedriveRequest struct {
	Filter       *RedriveFilterRequest `json:"filter,omitempty" doc:"All OPEN letters that it selects; {} selects all. They are redriven by and by: the answer is 202"`
	IDs          []string              `json:"ids,omitempty" maxItems:"1000" doc:"These letters, at once"`
	DryRun       bool                  `json:"dry_run,omitempty" doc:"Count and change nothing"`
	Max          int64                 `json:"max,omitempty" minimum:"1" doc:"Of a filter: redrive at most so many; all without it"`
	Rate         float64               `json:"rate,omitempty" minimum:"0.01" maximum:"10000" doc:"Of a filter: at most so many per second; as fast as it goes without it"`
	StopOnErrors float64               `json:"stop_on_errors,omitempty" minimum:"0" exclusiveMaximum:"1" doc:"Of a filter with a rate: stop when more than this share was refused or failed again, from the tenth letter on"`
	Force        bool                  `json:"force,omitempty" doc:"Beyond 5 redrives of an event, and of letters that are named those that are not OPEN"`
	NewID        bool                  `json:"new_id,omitempty" doc:"Give the events new ids, so that consumers that have processed the old ones process them again; needs force"`
	Reason       string                `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// RedriveFilterRequest selects letters. What is left out selects all.
type RedriveFilterRequest struct {
	Topic        string     `json:"topic,omitempty"`
	Consumer     string     `json:"consumer,omitempty"`
	Type         string     `json:"type,omitempty" doc:"CloudEvents type"`
	Class        string     `json:"class,omitempty" enum:"message,handler"`
	Fingerprint  string     `json:"fingerprint,omitempty"`
	Key          string     `json:"key,omitempty"`
	FailedAfter  *time.Time `json:"failed_after,omitempty"`
	FailedBefore *time.Time `json:"failed_before,omitempty"`
}

// RedriveResponse is the answer to a redrive of letters that are named, or to a
// dry run.
type RedriveResponse struct {
	DryRun   bool            `json:"dry_run,omitempty"`
	Matched  int64           `json:"matched" doc:"How many letters were asked for"`
	Redriven int             `json:"redriven" doc:"How many were redriven, or would be in a dry run"`
	Refused  int             `json:"refused" doc:"How many of those looked at were not"`
	Results  []LetterOutcome `json:"results" doc:"One per letter that was named; of a filter those that would be refused, at most 1000"`
}

// LetterOutcome is what became of one letter.
type LetterOutcome struct {
	ID      string           `json:"id"`
	Done    bool             `json:"done"`
	Problem *problem.Problem `json:"problem,omitempty" doc:"Why not; the letter is as it was"`
}

// LettersChanged is the answer to archiving, restoring and deleting.
type LettersChanged struct {
	Changed int64           `json:"changed" doc:"How many letters"`
	Results []LetterOutcome `json:"results" doc:"One per letter that was named"`
}

// DiscardRequest is the body of a discard.
type DiscardRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for the audit"`
}

// EditRequest is the body of an edit. What is left out stays as it is.
type EditRequest struct {
	Value       *DeadLetterBytes   `json:"value,omitempty" doc:"The record's value"`
	ValueJSON   json.RawMessage    `json:"value_json,omitempty" doc:"The record's value as JSON, in place of value; it is taken byte for byte"`
	Key         *DeadLetterBytes   `json:"key,omitempty" doc:"The record's key"`
	Headers     []DeadLetterHeader `json:"headers,omitempty" doc:"All headers of the record, in order"`
	AfterEdits  *int               `json:"after_edits,omitempty" minimum:"0" doc:"The edits that you have seen: if there are others by now, nothing changes"`
	ForceSchema bool               `json:"force_schema,omitempty" doc:"Also when the record breaks the schema of its event type, or is no event"`
	Reason      string             `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for the audit"`
}

// ArchiveRequest is the body of archiving: exactly one of filter and ids.
type ArchiveRequest struct {
	Filter   *RedriveFilterRequest `json:"filter,omitempty" doc:"All letters that it selects; {} selects all"`
	Statuses []string              `json:"statuses,omitempty" doc:"Of a filter: only letters in these statuses"`
	IDs      []string              `json:"ids,omitempty" maxItems:"1000" doc:"These letters"`
	Reason   string                `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit; required to archive"`
}

// RestoreRequest is the body of restoring: exactly one of filter and ids.
type RestoreRequest ArchiveRequest

// DeleteRequest is the body of deleting.
type DeleteRequest struct {
	IDs    []string `json:"ids" minItems:"1" maxItems:"1000" doc:"These letters"`
	Reason string   `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for the audit"`
}

// ControlRedriveRequest is the body of a change of a redrive. It may be missing.
type ControlRedriveRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// DeadLetterRedrive is a redrive of many letters.
type DeadLetterRedrive struct {
	ID           string              `json:"id" format:"uuid"`
	State        deadletter.JobState `json:"state" doc:"RUNNING, PAUSED, STOPPED, DONE or CANCELLED" example:"RUNNING"`
	Filter       LetterFilterWire    `json:"filter"`
	Max          int64               `json:"max,omitempty"`
	Rate         float64             `json:"rate,omitempty"`
	StopOnErrors float64             `json:"stop_on_errors,omitempty"`
	Force        bool                `json:"force,omitempty"`
	NewID        bool                `json:"new_id,omitempty"`
	Actor        string              `json:"actor"`
	Reason       string              `json:"reason,omitempty"`
	Matched      int64               `json:"matched" doc:"How many letters the filter selected at the start"`
	Redriven     int64               `json:"redriven"`
	Refused      int64               `json:"refused"`
	FailedAgain  int64               `json:"failed_again" doc:"How many of those redriven came back as letters"`
	Note         string              `json:"note,omitempty" doc:"Why it stopped"`
	CreatedAt    time.Time           `json:"created_at"`
	UpdatedAt    time.Time           `json:"updated_at"`
	FinishedAt   *time.Time          `json:"finished_at,omitempty"`
	Actions      []DeadLetterAction  `json:"actions,omitempty" doc:"Who started, paused, resumed and cancelled it; not in lists"`
}

// LetterFilterWire is the filter that a redrive was started with.
type LetterFilterWire RedriveFilterRequest

// DeadLetterRedriveList is one page of redrives.
type DeadLetterRedriveList struct {
	Redrives      []DeadLetterRedrive `json:"redrives"`
	NextPageToken string              `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same states; missing on the last"`
}

// RedriveLetter is what became of one letter of a redrive.
type RedriveLetter struct {
	ID          string    `json:"id" doc:"The dead letter"`
	At          time.Time `json:"at"`
	Redriven    bool      `json:"redriven"`
	FailedAgain bool      `json:"failed_again,omitempty"`
	FailedAs    string    `json:"failed_as,omitempty" doc:"The letter that its redrive ended in"`
	Problem     string    `json:"problem,omitempty" doc:"Why it was refused; the letter is as it was"`
}

// RedriveLetterList is one page of what became of the letters of a redrive.
type RedriveLetterList struct {
	Letters       []RedriveLetter `json:"letters"`
	NextPageToken string          `json:"next_page_token,omitempty" doc:"Asks for the next page; missing on the last"`
}

func fromJob(j deadletter.Job) DeadLetterRedrive {
	o := j.Order
	d := DeadLetterRedrive{
		ID: j.ID.String(), State: j.State, Max: o.Max, Rate: o.Rate, StopOnErrors: o.StopAbove, Force: o.Force, NewID: o.NewID,
		Actor: o.Actor, Reason: o.Reason, Matched: j.Matched, Redriven: j.Redriven, Refused: j.Refused, FailedAgain: j.FailedAgain,
		Note: j.Note, CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(), FinishedAt: moment(j.FinishedAt),
		Filter: LetterFilterWire{
			Topic: o.Filter.Topic, Consumer: o.Filter.Consumer, Type: o.Filter.EventType, Class: o.Filter.Class,
			Fingerprint: o.Filter.Fingerprint, Key: string(o.Filter.Key),
			FailedAfter: moment(o.Filter.FailedAfter), FailedBefore: moment(o.Filter.FailedBefore),
		},
	}
	for _, a := range j.Actions {
		d.Actions = append(d.Actions, fromAction(a))
	}
	return d
}
