package process

import "os"

// The first arguments (argv[0]) by which the own binary knows that it was
// started as something else than itself. They are what ps shows, too.
const (
	shimName   = "millrace-attempt" // the supervisor of one attempt
	launchName = "millrace-launch"  // sets limits on itself and becomes the program
)

// A shim leaves before main, and before most other packages are initialised: Go
// initialises a package as soon as those it imports are, and this one imports
// little. In a binary with all of Millrace's dependencies that saves two thirds
// of what an attempt costs. It also cannot be forgotten, and a worker that
// started another worker instead of a shim would do so without end.
func init() { //nolint:gochecknoinits // see above
	MaybeRunShim()
}

// MaybeRunShim does the work of a supervisor, and exits, in a process that was
// started as one; otherwise it returns at once. Importing this package is enough
// to have it called. A main function may call it first thing all the same, to
// say openly what its binary is used for.
func MaybeRunShim() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case shimName:
		exitNow(runShim())
	case launchName:
		exitNow(runLaunch(os.Args))
	}
}
