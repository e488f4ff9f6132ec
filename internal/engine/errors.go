package engine

import "errors"

// Errors. Their texts say what the state is.
var (
	// ErrNotFound: there is no such instance, definition, task or step.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the instance, task or step is not where the request belongs.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request can never be right.
	ErrInvalid = errors.New("invalid")
	// ErrWithoutKafka: the instance would send commands, and there is no Kafka to take them.
	ErrWithoutKafka = errors.New("there is no Kafka for its commands: set kafka.brokers, or have what it does by COMMAND done by SERVICE_TASK")
	// ErrOverloaded: more requests wait than may; nothing was done. Try again in a
	// moment.
	ErrOverloaded = errors.New("the engine has too much to do at the moment: try again")
	// ErrStopped: the engine does not run (any more); nothing was done.
	ErrStopped = errors.New("the engine is not running")
)
