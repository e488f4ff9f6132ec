// Package admission decides which queued execution is let through next. It is
// pure: no clock, no database. Package store (internal/execution/store) feeds it
// from the tables and verifies every decision under row locks before it counts.
//
// # Flows
//
// A flow holds the executions of one resource class that the same things stand in
// the way of: those of one user, for one executor, of one priority, under the same
// keys of limits.
// A flow that may not go on, because a limit is exhausted, a user is held, or nobody
// offers its executor, is in none of the structures that a decision looks at, so it
// costs the others nothing, however much waits in it.
//
// # Order
//
// A flow counts as the band of its priority, and as one more for every step that its
// head has waited while nothing of the same user and priority was let through. So
//
//   - a higher band goes first, and what is passed over for four steps is in the
//     highest: nobody's work of any priority stands still for longer, as long as there
//     is room. What is being served does not age, so a long queue gets ahead of nobody
//     by being old, nor of its own user's more urgent work;
//   - within a band users go first who hold less of the class than is due to them by
//     weight, among all who want some. What one holds is the largest share of any one
//     resource (dominant share). Among these the one goes first who was let through
//     least, by weight; among the others the one who holds the least;
//   - a user's own flows of one band go by rank, which is the time from which their
//     heads may be admitted, moved back by a step for each band of their priority.
//
// An execution that fits into no gap lets others pass for a limited time
// (Config.Overtake). After that, nothing is let through until there is room for it. One that
// finds no room in its executor's pool keeps back only what runs there, however full the class is.
//
// # Memory
//
// A Queue keeps a window of the head of each flow and knows how far it has read.
// What has arrived behind that, it reads when it gets there; of what has arrived
// before it, it is told (Fold). So the cost of a decision depends on neither how many
// executions nor how many flows wait. After an error the Queue may know more than the
// tables do: it is thrown away and read anew.
package admission
