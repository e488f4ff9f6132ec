// Package engine keeps workflow instances in PostgreSQL and moves them on: it loads what an
// input needs, asks the machine of package workflow what follows, and stores that with its
// jobs, timers and events in one transaction.
package engine
