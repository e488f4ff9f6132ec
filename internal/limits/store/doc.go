// Package store keeps what the database knows of limits beyond the buckets
// themselves, which package internal/execution/store spends: the definitions that
// hold, and what operators see and do.
//
// # Definitions
//
// Each coordinator has its limits from its configuration and decides by them. At its
// start it declares them: the table limit_definitions then says what the coordinator
// that started last decides by. What differed from the table before is a change, and
// is reported. A coordinator whose limits differ from the table later runs beside one
// that is configured in another way; Differing tells.
//
// # Buckets
//
// A row of limit_buckets is the state of one key of one limit. It is read here without
// a lock, by the clock of the database, and so is a moment old. Reset fills a bucket
// under its lock. Neither touches how many executions of the key are running: that is
// a count, not an opinion.
package store
