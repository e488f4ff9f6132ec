// Package process is the executor "process": it runs a program of the worker's
// own machine, as the worker's own user.
//
// # The shim
//
// Each attempt has a supervisor between the worker and the program: the worker's
// own binary, started again (MaybeRunShim). It learns over a pipe what to run and
// until when. It outlives the worker just long enough to end the program:
//
//	worker --orders (start, deadline, stop)--> shim --fork--> program --> its children
//	       <--reports (started, ended)--------
//	       <------------- stdout, stderr --------------------
//
// # What holds
//
//   - Nothing runs past the lease. The deadline travels as a reading of
//     CLOCK_BOOTTIME, which all processes of a machine share and which counts
//     while the machine sleeps; a message that is delayed cannot lengthen it. The
//     shim kills at the deadline, whether or not the worker is alive, stopped or
//     busy.
//   - The worker's death, also by SIGKILL, closes the pipe, and the shim kills at
//     once and removes the working directory.
//   - Killing means the whole tree: the process group, and every descendant, also
//     one that called setsid or forked twice, because orphans are handed to the
//     shim (PR_SET_CHILD_SUBREAPER), which goes on until it has no child left.
//   - An attempt is over when its program is. Children that it left in the
//     background are killed then.
//   - When the shim itself is killed, the kernel kills the program (Pdeathsig),
//     and the worker finds and kills what the program had started, by the
//     MILLRACE_WORKDIR of its environment. Should the worker be killed in that
//     same moment, grandchildren go on: that is the one case that is left open.
//   - The program gets no file descriptor but 0, 1 and 2, none of the worker's
//     environment, no new privileges (setuid programs have no effect), a session
//     of its own, no core dumps, and a fresh working directory, which is removed
//     afterwards.
//
// # What does not
//
// Without a Sandbox the program has the files, the network and the signals of the
// worker's user; run as root, it is root. It can kill its own shim, or the worker.
// Run the worker as a user of its own, and untrusted programs in the kubernetes
// executor. Isolation tells what holds on a machine.
//
// # Sandbox
//
// With one, the program is a grandchild of bubblewrap: it sees files read-only, an
// empty /tmp, no processes but its own, nothing of the directories that are hidden,
// and can write to its working directory only; it has no capabilities, and no network
// if that is taken away. Everything above holds inside as well. Two things differ: an
// end by a signal is reported as exit code 128 and the signal's number, and a file
// that the kernel refuses to execute ends the attempt as exit code 1. The walls are
// the kernel's namespaces, so a fault of the kernel is a hole in them; it is not a
// machine of its own.
//
// Bubblewrap may be missing or forbidden. SandboxAuto then runs programs without,
// which Isolation and the log say; SandboxRequired runs none.
//
// An init system should signal the worker alone when it stops it (systemd:
// KillMode=mixed), since a program that is sent SIGTERM directly ends as failed.
//
// # Environment of a program
//
// PATH, HOME and TMPDIR (both the working directory), LANG=C.UTF-8,
// MILLRACE_EXECUTION_ID, MILLRACE_ATTEMPT, MILLRACE_WORKDIR, MILLRACE_REPORT,
// MILLRACE_CHECKPOINT (if there is one), and what the spec adds; the spec wins,
// except for the MILLRACE_ names.
//
// # What the spec carries
//
// Its files lie in the working directory, and so does its script, under a name of
// Millrace's; they are for reading only. A script is handed to its interpreter, not
// executed, so the working directory may be on a file system that forbids executing.
//
// # Progress and checkpoints
//
// MILLRACE_REPORT is the path of a pipe. What a program writes to it are lines of
// JSON:
//
//	{"progress": 0.25, "message": "reading"}      a fraction from 0 to 1
//	{"done": 3, "total": 12, "message": "files"}  or numbers; without total a count
//	{"checkpoint": "row 300"}                     a text for the next attempt
//	{"checkpoint_base64": "AAECAw=="}             or any bytes, up to 64 KiB
//
// Each replaces what was told before. From a shell:
//
//	echo '{"done":3,"total":12}' >"$MILLRACE_REPORT"
//
// MILLRACE_CHECKPOINT is the path of a file with the last checkpoint of the attempts
// before. A line of up to 4096 bytes arrives whole whoever else writes; longer ones
// are for one writer at a time. Lines that make no sense are skipped, and the first
// of an attempt is in the worker's log. Writing never blocks for longer than the
// worker takes to read, and does not wait for anything to be stored.
package process
