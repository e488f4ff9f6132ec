package sagas

import "context"

// Starter starts sagas. A constructor that is given to package app may ask for one.
type Starter interface {
	// Start begins a saga and returns its id. It is a transaction of its own, committed
	// when Start returns. A saga whose definition was never stored is an error.
	Start(ctx context.Context, s Start) (id string, err error)
}

// Start says which saga to start, and with what.
type Start struct {
	// Saga is its name. Required.
	Saga string
	// State is what it begins with: the state of the saga, or whatever gives the same
	// JSON.
	State any
	// ID, a UUID, makes the call repeatable: the same one starts the saga once. The id of
	// an event that leads to it serves well. Empty: a new one.
	ID string
	// BusinessKey is what it is about in words of its own, such as an order's number.
	BusinessKey string
	// Priority is 1 to 5, the most urgent; 0 means 3.
	Priority int
	// Tenant and User are whose it is. CorrelationID groups it with what led to it.
	Tenant, User, CorrelationID string
}
