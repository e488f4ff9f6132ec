// Package app assembles Millrace: it is the only package that knows fx.
//
// Run starts what a configuration asks for and stays until it is told to stop.
// Main is for programs of users that add consumers or functions:
//
//	func main() { app.Main(app.Consumer(NewAudit)) }
//
// # Order
//
// First come the servers of the configuration (the embedded ones are started, the
// others waited for), then the schema and the topics are checked, then fx builds
// the roles and starts their parts in the order of dependency: wake-ups, relay,
// coordinator, worker, consumers, and at last the API, which reports ready when
// everything below it is. Stopping goes the other way: readiness fails first,
// requests end, consumers drain, the worker hands back what it cannot finish, the
// relay publishes what is left, and the servers stop last.
//
// # Crashes
//
// Nothing here holds state. A part that ends with an error ends the program, and
// whoever supervises it starts it again.
package app
