// Package server runs an HTTP server: it listens, serves, wraps every handler in
// what all requests need, and stops in order.
//
// # Every request
//
// gets an id (X-Request-Id, the caller's own if it is a decent one), takes up a
// trace context, is counted and timed by route, and is logged at debug. A panic
// becomes a problem with status 500, and its stack goes to the log under the
// request id. What no route matches is a problem too. A server on a loopback
// address answers only to loopback host names, and unsafe requests that a browser
// sends for another site are refused: otherwise any web page could talk to a
// server on the visitor's own machine.
//
// # Stopping
//
// Shutdown first makes the process not ready, waits as long as configured for
// load balancers to notice, ends live streams, then stops to accept and waits for
// the requests that are being served until its context ends. Requests that are
// cut off then get no answer; whatever they stored is stored.
package server
