// Package workflow is what a workflow means: the definition's format, its faults, the
// plan compiled from it, and the machine that takes an instance from one state to the
// next. It does no input or output and knows no clock: whoever calls it brings the
// state, the time and the ids, and stores what comes out in one transaction.
//
// # The machine
//
// Advance takes a State and an Input (the instance starts, a job was completed, a timer
// is due ...) and returns Changes: the State after it, the activities that began and
// those that are void, timers, events. One input leads as far as it can without waiting:
// through decisions, transformations and gateways up to the next activities or the end.
//
// The same state and input give the same changes. An input that does not fit the state
// as it is (a timer of a step that has ended, the second completion of a job) changes
// nothing and says why (ErrStale), so inputs may come late, twice and in any order.
//
// # Tokens
//
// An open step is a token. A PARALLEL_GATEWAY opens a fork, with a numbered branch for
// each of its next steps; tokens carry their fork and branch, forks nest. A JOIN_GATEWAY
// takes the tokens of its fork and goes on when every branch has arrived once; it does not
// wait for a branch in which no token is left. What a non-interrupting boundary timer
// starts belongs to the branch of its step, and when it comes to a join that has gone on
// without it, it just ends. An END ends the instance whatever else is open. A token whose
// step has no next step just ends; the last one to end completes the instance.
//
// # Failure
//
// A step that fails is attempted again as its policy says. After that an error boundary
// takes it; without one the instance fails: what is open is void, and the compensations of
// the steps that were completed run one by one, the last first. So do those of steps that
// are in doubt: an attempt got no answer, or the step was given up while somebody was at
// it. One that cannot be brought about leaves the instance in NEEDS_ATTENTION for a person.
//
// # Storing it
//
// Whoever stores the changes stores all of them or none, under a lock of the instance. The
// state survives a crash between any two inputs, since it is what the next one starts from.
// Activities and timers that are open are exactly those that changes began and set, and did
// not void and unset. Reports are at least once: a second one is ErrStale, and so is one of
// an attempt that is not open any more.
package workflow
