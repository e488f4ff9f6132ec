// Package history judges what was decided about executions, from the events that
// tell of it. It knows none of the code that decides: events go in, violations come
// out. Read takes the events from a database; the rest of the package is pure.
//
// # What is judged
//
//   - Lives: every execution has a gapless history that the state machine allows and
//     that ends in the state that its row has; no attempt is scheduled, started or
//     issued as a task twice; attempts rise one by one; once settled, every execution
//     has ended, so none was forgotten.
//   - Capacity: at no instant do the executions between their admission and their
//     release take more of a resource class than its bound.
//   - Limits: through no window of time did more get than burst + rate x window, for
//     each key of each limit; nor were more in use at once than its concurrency.
//   - Keys: of one concurrency key one execution at a time is admitted, in the order
//     of submission, and the next not before the end of the one before.
//   - Order: within one queue nobody is passed over for longer than a bound.
//
// # Time
//
// Events carry the time of the fact by the database's clock, read under the row
// lock. A release is therefore stamped before it can be seen, and an admission that
// makes use of it after that: in the order of the stamps nothing is in use that had
// not been free, as long as that clock does not step back.
package history
