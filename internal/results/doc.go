// Package results keeps the values of executions that are too large to travel in
// events and rows. Those carry a reference (id, length, SHA-256), and the value is
// asked for by itself.
//
// # Where values are
//
// A value is kept by a Blobs: in PostgreSQL, in chunks, or in a directory that all
// workers and servers share, as a file each. Its row in execution_results says where,
// so values can be read wherever they were kept before a change of configuration.
//
// # Crash
//
// A value and its row are durable before the result that refers to them is recorded.
// So a reference never leads nowhere before its time is over. What a crash leaves is
// the other way round: values that nothing refers to, because their result was never
// recorded, or counted no more. Sweep removes them. It leaves alone what belongs to
// an attempt that still runs, since that attempt may be about to refer to it; any
// other attempt is refused when it tries.
//
// A file without a row is left by a crash between the two. It is removed when it is
// older than StrayAge.
//
// # Reading
//
// A value is checked against its hash while it is read; the last piece of one that
// is damaged is withheld.
package results
