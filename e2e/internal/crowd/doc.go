// Package crowd is a drill: a crowd of users asks for thousands of executions with
// limits, keys, priorities, times and cancels of all sorts, of an installation whose
// coordinators are killed and frozen in turn. Then everything that was decided is
// judged by its events (internal/history): nothing was admitted twice, no limit was
// exceeded at any instant, every key kept its order, nobody was forgotten.
//
// # Replay
//
// What is asked for, by whom, in which order, what is cancelled, and for how long who
// admits is left alone and frozen follow from the seed. Who that is and what it was
// doing at that moment is the machine's business.
package crowd
