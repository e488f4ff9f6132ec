// Package instance is about the process that `millrace up` runs on a data
// directory: that there is one at a time, who it is, how to stop it, and which
// entries of the directory are Millrace's own.
//
// # The claim
//
// The process holds a lock on millrace.pid from before it starts anything until
// everything has stopped, and has its process id and start time in there. The lock
// is the proof: the kernel releases it with the process, however that ends, so a
// file that is left behind says nothing. The process id is how to signal the
// holder, and is checked against the start time that the kernel knows, because
// process ids are used again.
//
// # Crash behaviour
//
// After SIGKILL the file stays and nobody holds it: Find finds nobody, and the
// next Claim takes it over.
package instance
