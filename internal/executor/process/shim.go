package process

import (
	"os"
	"sync/atomic"
)

// The first arguments (argv[0]) by which the own binary knows that it was
// started as something else than itself. They are what ps shows, too.
const (
	shimName   = "millrace-attempt" // the supervisor of one attempt
	launchName = "millrace-launch"  // sets limits on itself and becomes the program
)

// armed says that main has given MaybeRunShim its chance. It is the one variable
// of this package: whether a process can be started again as a shim is a
// property of its main function, and getting it wrong would make workers start
// workers without end.
var armed atomic.Bool

// MaybeRunShim must be the first call of main, and of TestMain where tests run
// programs. In a process that was started as the supervisor of an attempt it
// does that work and exits; otherwise it returns at once.
func MaybeRunShim() {
	if len(os.Args) > 0 {
		switch os.Args[0] {
		case shimName:
			os.Exit(runShim())
		case launchName:
			os.Exit(runLaunch(os.Args))
		}
	}
	armed.Store(true)
}
