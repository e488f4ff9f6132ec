// Package postgres is how Millrace talks to PostgreSQL: the pool, the schema,
// transactions, the meaning of errors, and wake-ups between processes.
//
// # Schema
//
// The tables of all packages form one stream of migrations in the folder
// migrations, which is built into the binary. Migrate brings a database up to
// date and is safe when several processes start at once; CheckCurrent says,
// without writing anything, whether a database fits this binary.
//
// # Transactions
//
// InTx runs a function in a READ COMMITTED transaction and commits it. A commit
// whose reply was lost is reported as ErrInDoubt: only a look at the data tells
// what happened, which is why what callers write carries ids of their own.
//
// # Signals
//
// A signal says "look now", never what happened: it may come late, twice, for no
// reason, or not at all. Whoever waits for one polls as well, only more slowly.
//
// # Time
//
// Every connection runs in UTC, and times are read as UTC.
package postgres
