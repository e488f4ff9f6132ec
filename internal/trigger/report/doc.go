// Package report knows how every trigger of an installation is doing, in whatever process
// its members run.
//
// # Who writes and who reads
//
// The process that holds the lease of a member writes what the member says (tables
// trigger_members, trigger_partitions): a change of state within a fifth of a second, mere
// progress once a second, and nothing at all of a trigger that rests. Each statement
// writes only under a lease that is held, by the database's clock: somebody who does not
// know yet that it was lost overwrites nothing. A Reader puts the rows together with the
// leases.
//
// # When something dies
//
// When the lease runs out, the member shows as unowned, with what was known of it last.
// Since when something stands is kept when its owner changes: the next one goes on counting
// if it finds the same. When PostgreSQL is away nothing is written; what is true then is
// written once it is back.
//
// # Order
//
// Reports of one member are written in the order in which they were made, those in between
// left out.
package report
