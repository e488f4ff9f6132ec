package topics

import (
	"encoding/json"
	"time"
)

// What happens to schedules. Every event of ScheduleEvents carries the version of its
// schedule, from 1 (Envelope.Sequence).
//
// SchedulePlanned says when a schedule fires next, ScheduleStopped that it does not any
// more. A time that comes leads to one ScheduleFired and one ScheduleTask, which are
// written together; then ScheduleStarted, ScheduleRefused or ScheduleSkipped says what
// became of it. ScheduleMissed tells of times that passed while nobody was there.

// Schedule says which schedule an event is about.
type Schedule struct {
	// TriggerUID is the uid of the trigger: key and subject. It is another one when a
	// trigger is deleted and applied again.
	TriggerUID string `json:"trigger_uid" schema:"minLength=1,maxLength=255"`
	// TriggerID is what people call it.
	TriggerID string `json:"trigger_id" schema:"minLength=1,maxLength=255"`
}

// EventKey implements Event: the uid of the trigger.
func (s Schedule) EventKey() string { return s.TriggerUID }

// ScheduleTime says which firing an event is about: a schedule fires once for a time.
type ScheduleTime struct {
	Schedule
	// ScheduledAt is the time of the schedule.
	ScheduledAt time.Time `json:"scheduled_at"`
}

// SchedulePlanned says that a schedule was made, changed or switched on, and when it fires.
type SchedulePlanned struct {
	Schedule
	// Revision is that of the trigger.
	Revision int64 `json:"revision" schema:"minimum=1"`
	// NextAt is its next time, DueAt when that is due: later by the schedule's jitter.
	NextAt time.Time `json:"next_at"`
	DueAt  time.Time `json:"due_at"`
}

// EventType implements Event.
func (SchedulePlanned) EventType() string { return "millrace.schedule.planned.v1" }

// ScheduleStopped says that a schedule does not fire any more.
type ScheduleStopped struct {
	Schedule
	// Reason is "disabled", "deleted", "changed" (the trigger is no schedule any more) or
	// "ended" (no time is left).
	Reason string `json:"reason" schema:"code"`
}

// EventType implements Event.
func (ScheduleStopped) EventType() string { return "millrace.schedule.stopped.v1" }

// ScheduleFired says that a time has come.
type ScheduleFired struct {
	ScheduleTime
	// DueAt is when it was due, FiredAt when it was noticed.
	DueAt   time.Time `json:"due_at"`
	FiredAt time.Time `json:"fired_at"`
	// Missed is true when it was noticed too late to be on time, and is made up for.
	Missed bool `json:"missed,omitempty"`
	// By is who fired it by hand.
	By string `json:"by,omitempty" schema:"maxLength=255"`
}

// EventType implements Event.
func (ScheduleFired) EventType() string { return "millrace.schedule.fired.v1" }

// ScheduleMissed says that times passed that nothing is started for.
type ScheduleMissed struct {
	Schedule
	// FirstAt and LastAt are the first and the last of them.
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	// Count is how many there were; at least so many when More is true.
	Count int  `json:"count" schema:"minimum=1"`
	More  bool `json:"more,omitempty"`
}

// EventType implements Event.
func (ScheduleMissed) EventType() string { return "millrace.schedule.missed.v1" }

// ScheduleStarted says that what a firing starts was made.
type ScheduleStarted struct {
	ScheduleTime
	// Kind is what was made: "execution" or "instance"; TargetID is its id.
	Kind     string `json:"kind" schema:"enum=execution|instance"`
	TargetID string `json:"target_id" schema:"minLength=1,maxLength=255"`
	// Attempts is how many it took, from 1.
	Attempts int `json:"attempts" schema:"minimum=1"`
}

// EventType implements Event.
func (ScheduleStarted) EventType() string { return "millrace.schedule.started.v1" }

// ScheduleRefused says that nothing can be made of a firing, now or later.
type ScheduleRefused struct {
	ScheduleTime
	// Reason is a stable code in snake_case, such as "mapping" or "invalid_request".
	Reason string `json:"reason" schema:"code"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
}

// EventType implements Event.
func (ScheduleRefused) EventType() string { return "millrace.schedule.refused.v1" }

// ScheduleSkipped says that nothing is made of a firing, by the rules of its schedule.
type ScheduleSkipped struct {
	ScheduleTime
	// Reason is a stable code in snake_case: "overlap", "backlog", "limit_reached",
	// "trigger_disabled" or "trigger_deleted".
	Reason string `json:"reason" schema:"code"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
}

// EventType implements Event.
func (ScheduleSkipped) EventType() string { return "millrace.schedule.skipped.v1" }

// ScheduleTask is due work: a firing whose target is to be made. It is written in the
// transaction of its ScheduleFired.
type ScheduleTask struct {
	ScheduleTime
	// DueAt is when it was due, FiredAt when it was noticed.
	DueAt   time.Time `json:"due_at"`
	FiredAt time.Time `json:"fired_at"`
	// Input is what the trigger's mapping sees as body: a JSON object.
	Input json.RawMessage `json:"input,omitempty"`
}

// EventType implements Event.
func (ScheduleTask) EventType() string { return "millrace.schedule.task.v1" }

func scheduleTypes() []Type {
	of := Schedule{TriggerUID: exampleExecutionID, TriggerID: "nightly-report"}
	at := ScheduleTime{of, time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}
	due, fired := at.ScheduledAt.Add(17*time.Second), at.ScheduledAt.Add(17*time.Second+4*time.Millisecond)
	return []Type{
		newType(ScheduleEvents, "", SchedulePlanned{Schedule: of, Revision: 3, NextAt: at.ScheduledAt, DueAt: due}),
		newType(ScheduleEvents, "", ScheduleFired{ScheduleTime: at, DueAt: due, FiredAt: fired, Missed: true, By: "ada"}),
		newType(ScheduleTasks, "", ScheduleTask{
			ScheduleTime: at, DueAt: due, FiredAt: fired, Input: json.RawMessage(`{"report":"daily"}`)}),
		newType(ScheduleEvents, "", ScheduleStarted{ScheduleTime: at, Kind: "execution", TargetID: exampleExecutionID, Attempts: 1}),
		newType(ScheduleEvents, "", ScheduleRefused{
			ScheduleTime: at, Reason: "mapping", Message: "spec/command/1: body.report is missing"}),
		newType(ScheduleEvents, "", ScheduleSkipped{
			ScheduleTime: at, Reason: "overlap", Message: "what 2026-01-01T03:00:00Z started has not ended"}),
		newType(ScheduleEvents, "", ScheduleMissed{
			Schedule: of, FirstAt: at.ScheduledAt, LastAt: at.ScheduledAt.Add(2 * time.Hour), Count: 3, More: true}),
		newType(ScheduleEvents, "", ScheduleStopped{Schedule: of, Reason: "disabled"}),
	}
}
