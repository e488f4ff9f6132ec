// Package lifecycle reads the events that workflow engines publish about their
// workflows and tasks, whichever of the two shapes in use their data has, into one
// neutral [Event]. It does no I/O and keeps no state, so it has nothing to lose in a
// crash; order and delivery are the business of its caller.
//
// # What is read
//
// CloudEvents 1.0 in binary or structured mode, of the types
//
//	io.serverlessworkflow.{workflow,task}.{created,started,suspended,resumed,completed,faulted,cancelled,retried,status-changed}
//
// with ".v1" behind or without. The attribute time, optional in CloudEvents, is
// required here: it is what puts the events of programs in order that do not number
// them. Other types are none of this package's business, and neither is what engines
// tell under these prefixes beside (such as correlation-started); [Read] says so by a
// [Skip]. Another version than ".v1" is refused: it tells of a life in terms that are
// not known here.
//
// # Shapes
//
// The flat shape has instanceId, workflowName, startTime and the like, the nested one
// is what the CNCF Serverless Workflow specification describes and its Java SDK sends:
// name (the id of the instance) and definition for workflows, workflow (the id) and
// task (the position) for tasks, and one time per type, such as completedAt. They are
// told apart event by event: instanceId makes it flat.
//
// # Defects
//
// What cannot be read is a *topics.DecodeError, with one of the codes of package
// topics or of this one, a JSON pointer to what is wrong, and no value from the event.
// docs/data-index.md lists them. Values that PostgreSQL could not store are no
// defects: [Storable] makes them such that it can.
package lifecycle
