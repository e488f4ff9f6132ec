// Package admission decides which queued execution is let through next. It is
// pure: no clock, no database. Package store (internal/execution/store) feeds it
// from the tables and verifies every decision under row locks before it counts.
//
// # Lanes
//
// A lane holds the executions of one resource class that the same things stand in
// the way of: those of one user, for one executor, under the same keys of limits.
// A lane that may not go on, because a limit is exhausted, a user is held, or nobody
// offers its executor, is in none of the structures that a decision looks at, so it
// costs the others nothing, however much waits in it.
//
// # Order
//
// The rank of an execution is the time it became ready, moved back by a step for
// each band of its priority above the lowest. From it follows the band that it
// counts as at any moment: one more for every step that it has waited. So
//
//   - a higher band goes first, and after four steps everything is in the highest:
//     nothing waits behind a stream of more urgent executions for longer;
//   - within a band users go first who hold less of the class than is due to them by
//     weight, among all who want some. What one holds is the largest share of any one
//     resource (dominant share). Among these the one goes first who was let through
//     least, by weight; among the others the one who holds the least;
//   - a user's own executions go by rank.
//
// An execution that fits into no gap lets others pass for a limited time
// (Config.Overtake). After that, nothing is let through until there is room for it.
//
// # Memory
//
// A Queue keeps a window of the head of each lane and knows how far it has read.
// What has arrived behind that, it reads when it gets there; of what has arrived
// before it, it is told (Fold). So the cost of a decision depends on neither how many
// executions nor how many lanes wait. After an error the Queue may know more than the
// tables do: it is thrown away and read anew.
package admission
