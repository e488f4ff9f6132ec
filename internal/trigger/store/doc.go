// Package store keeps triggers in PostgreSQL.
//
// A change is one transaction, and there is one at a time: it has its effects in the tables
// of others (Follower) or none, and it raises a number (Version) that tells whoever follows
// triggers that there is something to read. After the commit a signal (WakeName) says so
// too, which may be lost: who follows asks for the number now and then. A process that dies
// in the middle has changed nothing.
//
// # Identity
//
// A trigger is known by its id, which users choose, and its uid. Applying again keeps the
// uid and raises the revision, unless nothing has changed; deleting and applying makes a
// new uid. The type and the consumer group are for ever those that it was first applied
// with: what has been received, and where reading goes on, hang on them.
package store
