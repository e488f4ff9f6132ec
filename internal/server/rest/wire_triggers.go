package rest

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// Trigger is a trigger.
type Trigger struct {
	ID      string `json:"id" example:"orders"`
	UID     string `json:"uid" format:"uuid" doc:"Tells it from those that had the name before"`
	Type    string `json:"type" enum:"kafka,webhook,schedule"`
	Enabled bool   `json:"enabled"`
	Tenant  string `json:"tenant,omitempty" doc:"Whose its executions and instances are"`
	// Revision is for If-Match.
	Revision  int64     `json:"revision" doc:"Counts the changes, from 1"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by,omitempty"`
	// State and Cause are of status, in short.
	State      string          `json:"state,omitempty" enum:"disabled,starting,running,error,unowned" doc:"How it is doing; missing where that is not known"`
	Cause      *TriggerCause   `json:"cause,omitempty" doc:"Why it does not go on"`
	Since      *time.Time      `json:"since,omitempty" doc:"When the state began"`
	Definition json.RawMessage `json:"definition" doc:"What was applied, which can be applied again; docs/trigger-format.md has all of its fields"`
}

// TriggerList is a page of triggers, by id.
type TriggerList struct {
	Triggers      []Trigger `json:"triggers"`
	NextPageToken string    `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters; missing on the last"`
}

// AppliedTrigger is what became of a definition.
type AppliedTrigger struct {
	Trigger
	Status   string         `json:"status" enum:"created,updated,unchanged"`
	DryRun   bool           `json:"dry_run,omitempty" doc:"Nothing was stored"`
	Warnings []TriggerFault `json:"warnings,omitempty" doc:"What is probably not what was meant"`
}

// TriggerFault is something that is wrong with a definition.
type TriggerFault struct {
	Pointer string `json:"pointer" doc:"JSON pointer into the definition" example:"/kafka/topics"`
	Code    string `json:"code" doc:"A stable code; docs/trigger-format.md lists them" example:"required"`
	Message string `json:"message" example:"is required: the topics to read"`
	Hint    string `json:"hint,omitempty" doc:"What to do"`
	Warning bool   `json:"warning" doc:"Whether the definition can be used nevertheless"`
}

// TriggerReport says what is wrong with a definition.
type TriggerReport struct {
	Valid  bool           `json:"valid" doc:"Whether it can be applied: no fault is more than a warning"`
	Faults []TriggerFault `json:"faults" doc:"In the order of the fields"`
}

// TriggerCause says why something stands still, or might.
type TriggerCause struct {
	Code    string `json:"code" doc:"Stable" example:"broker_unreachable"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty" doc:"What to do"`
}

// TriggerStatus is how a trigger is doing in the whole installation.
type TriggerStatus struct {
	ID         string             `json:"id" example:"orders"`
	UID        string             `json:"uid" format:"uuid"`
	Type       string             `json:"type" enum:"kafka,webhook,schedule"`
	Revision   int64              `json:"revision"`
	State      string             `json:"state" enum:"disabled,starting,running,error,unowned" doc:"The worst of members and partitions"`
	Cause      *TriggerCause      `json:"cause,omitempty"`
	Since      *time.Time         `json:"since,omitempty" doc:"When the state began"`
	NextTry    *time.Time         `json:"next_try,omitempty"`
	Notes      []TriggerCause     `json:"notes,omitempty" doc:"Warnings that stop nothing"`
	NextAt     *time.Time         `json:"next_at,omitempty" doc:"The next time of a schedule; missing where none is left"`
	LastAt     *time.Time         `json:"last_at,omitempty" doc:"The latest time of a schedule that fired"`
	Lag        *int64             `json:"lag,omitempty" doc:"How many messages wait in its topics; missing where it has none, or it is not known"`
	Members    []TriggerMember    `json:"members"`
	Partitions []TriggerPartition `json:"partitions,omitempty"`
	Settings   []TriggerSetting   `json:"settings,omitempty" doc:"The values in use, with where each comes from"`
}

// TriggerMember is a process's part in a trigger.
type TriggerMember struct {
	Member     int           `json:"member" doc:"From 0"`
	Owner      string        `json:"owner,omitempty" doc:"The process that runs it, or did last"`
	State      string        `json:"state" enum:"disabled,starting,running,error,unowned"`
	Cause      *TriggerCause `json:"cause,omitempty"`
	Since      *time.Time    `json:"since,omitempty"`
	NextTry    *time.Time    `json:"next_try,omitempty"`
	Attempts   int           `json:"attempts,omitempty" doc:"Tries since it stood"`
	Revision   int64         `json:"revision,omitempty" doc:"Of the definition that it runs"`
	ReportedAt *time.Time    `json:"reported_at,omitempty"`
}

// TriggerPartition is how one partition is doing.
type TriggerPartition struct {
	Topic      string        `json:"topic"`
	Partition  int32         `json:"partition"`
	Member     int           `json:"member"`
	State      string        `json:"state" enum:"starting,running,error,unowned"`
	Cause      *TriggerCause `json:"cause,omitempty"`
	Offset     int64         `json:"offset" doc:"Of the next message, or of the one that cannot be taken"`
	Key        []byte        `json:"key,omitempty" doc:"Of the message that cannot be taken"`
	Committed  int64         `json:"committed" doc:"The offset of the group"`
	End        int64         `json:"end" doc:"The offset behind the last message, -1 if it is not known"`
	Lag        *int64        `json:"lag,omitempty"`
	Since      *time.Time    `json:"since,omitempty"`
	NextTry    *time.Time    `json:"next_try,omitempty"`
	Attempts   int           `json:"attempts,omitempty"`
	ReportedAt *time.Time    `json:"reported_at,omitempty"`
}

// TriggerSetting is a value in use.
type TriggerSetting struct {
	Name   string `json:"name" example:"kafka.prefetch_count"`
	Value  any    `json:"value"`
	Source string `json:"source" enum:"definition,default,installation" doc:"Where it comes from"`
}

func fromTrigger(t trigger.Stored) (Trigger, error) {
	definition, err := t.Export()
	if err != nil {
		return Trigger{}, err
	}
	return Trigger{
		ID: t.ID, UID: t.UID, Type: string(t.Type), Enabled: t.IsEnabled(), Tenant: t.Tenant, Revision: t.Revision,
		CreatedAt: t.CreatedAt.UTC(), CreatedBy: t.CreatedBy, UpdatedAt: t.UpdatedAt.UTC(), UpdatedBy: t.UpdatedBy, Definition: definition,
	}, nil
}

func fromTriggerFaults(faults []trigger.Fault, warningsOnly bool) []TriggerFault {
	out := []TriggerFault{}
	for _, f := range faults {
		if f.Warning || !warningsOnly {
			out = append(out, TriggerFault{Pointer: f.Pointer, Code: f.Code, Message: f.Message, Hint: f.Hint, Warning: f.Warning})
		}
	}
	return out
}

// triggerProblem tells all faults of a definition.
func triggerProblem(e *trigger.FaultsError) *problem.Problem {
	var faults []problem.Fault
	for _, f := range e.Faults {
		if !f.Warning {
			faults = append(faults, problem.Fault{Pointer: f.Pointer, Code: f.Code, Message: f.Message, Hint: f.Hint})
		}
	}
	detail := "it has 1 fault; nothing has changed"
	if len(faults) != 1 {
		detail = "it has several faults; nothing has changed"
	}
	return problem.TriggerInvalid().With(detail, faults...)
}

func fromCause(c *trigger.Cause) *TriggerCause {
	if c == nil {
		return nil
	}
	return &TriggerCause{Code: c.Code, Message: c.Message, Hint: c.Hint}
}

func fromTriggerStatus(s trigger.Status) TriggerStatus {
	out := TriggerStatus{
		ID: s.ID, UID: s.UID, Type: string(s.Type), Revision: s.Revision, State: string(s.State), Cause: fromCause(s.Cause),
		Since: moment(s.Since), NextTry: moment(s.NextTry), NextAt: moment(s.NextAt), LastAt: moment(s.LastAt), Lag: s.Lag, Members: []TriggerMember{},
	}
	for _, n := range s.Notes {
		out.Notes = append(out.Notes, *fromCause(&n))
	}
	for _, m := range s.Members {
		out.Members = append(out.Members, TriggerMember{
			Member: m.Member, Owner: m.Owner, State: string(m.State), Cause: fromCause(m.Cause), Since: moment(m.Since),
			NextTry: moment(m.NextTry), Attempts: m.Attempts, Revision: m.Revision, ReportedAt: moment(m.ReportedAt),
		})
	}
	for _, p := range s.Partitions {
		partition := TriggerPartition{
			Topic: p.Topic, Partition: p.Partition, Member: p.Member, State: string(p.State), Cause: fromCause(p.Cause), Offset: p.Offset, Key: p.Key,
			Committed: p.Committed, End: p.End, Since: moment(p.Since), NextTry: moment(p.NextTry), Attempts: p.Attempts, ReportedAt: moment(p.ReportedAt),
		}
		if p.End >= 0 {
			partition.Lag = new(max(p.End-max(p.Committed, 0), 0))
		}
		out.Partitions = append(out.Partitions, partition)
	}
	for _, v := range s.Effective {
		out.Settings = append(out.Settings, TriggerSetting{Name: v.Name, Value: v.Value, Source: v.Source})
	}
	return out
}
