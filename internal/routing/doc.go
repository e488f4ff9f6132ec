// Package routing knows which task topic the executions of a resource class go to,
// and whether anybody reads it.
//
// The route is a setting of coordinators, what a worker reads is a setting of
// workers, and between the two may stand a stage: a consumer of somebody else's that
// reads one task topic and passes on to another. So the settings of two processes
// may differ on purpose or by mistake, and neither can tell by itself. Each
// coordinator records the route of a class when it becomes its admitter (table
// task_routes); workers announce what they read; consumers report what they own
// (package internal/consumers). Inspect puts the three together.
//
// # When something dies
//
// Nothing is decided here: tasks go where the coordinator's own settings say,
// whether or not that could be recorded. A task in a topic that nobody reads is not
// lost either: the start limit puts its execution back into the queue, and the next
// attempt goes where the class is routed then. What package routing adds is that
// somebody is told.
package routing
