// Package client calls the REST API of Millrace. It imports nothing of the
// server: its types are the contract as a caller sees it, and fields that a
// newer server adds are ignored.
//
// # Delivery
//
// Calls are made once: a Submit that fails without an answer may have been
// accepted, and is safe to repeat only with an idempotency key. Watch is the
// exception. It reconnects by itself and resumes behind the last event that it
// handed out, so that its caller sees each event once and in the order of the
// server, whatever happens to the connection; where the server can no longer
// resume, it says so with an Event of type Reset.
//
// # Errors
//
// An answer of 400 or more is a *Problem. A server that cannot be reached is an
// *UnreachableError. Neither ever contains the token.
package client
