// Package engine keeps workflow instances in PostgreSQL and moves them on: it loads what an
// input needs, asks the machine of package workflow what follows, and stores that with its
// jobs, timers and events in one transaction. docs/adr/0042 has the reasons.
//
// # Transactions
//
// Callers hand requests to a queue. A transaction takes all that wait
// (Config.TransactionSize at most) and has two round trips: one that locks and reads, one
// that writes and commits. While it is under way others gather for the next one; another
// begins beside it (up to Config.Transactions) when there is enough for one, or when it
// takes longer than commits on a quick disk do. So the busier the engine is, the less a
// request costs, and one that comes alone waits for nobody. Requests are done one after the
// other on what those before them have left in memory. One that is refused has changed
// nothing and does not touch its neighbours; when the transaction fails for what is in it,
// halves are run on their own. The queue is bounded (ErrOverloaded), first come first
// served. A caller whose context ends leaves; what a transaction has taken by then is done
// all the same.
//
// # Order
//
// What happens to an instance is in one order: its row is locked. Its journal has the
// versions 1, 2, 3 ... without gaps. Locks are taken as instances by id, jobs by id, keys of
// signals; whoever takes others before these may deadlock, and is repeated.
//
// # Crashes
//
// A reply is given after the commit that holds its work. What is asked again after a
// crash, or after a commit of which nothing was heard, finds it done: starts by the id that the client has
// chosen, reports of jobs by their holder, signals by their id, user tasks and decisions by
// the status they led to. What an instance owes to another one is a row of wf_timers,
// written in the same transaction: this process acts on it at once, RunTimers of any
// process later.
//
// # Delivery
//
// Events go through the outbox, in the transaction of what they tell, numbered per instance.
package engine
