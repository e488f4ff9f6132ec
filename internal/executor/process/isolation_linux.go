package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime bounds Isolation where the caller's context does not.
const probeTime = 10 * time.Second

// Isolation reports what holds for programs on this machine, run with such a
// sandbox. It does not guess: it starts a shim, which sets up what it would for a
// program and looks at the result.
func Isolation(ctx context.Context, s Sandbox) ([]Feature, error) {
	sandbox, try := sandboxFeature(s)
	p, err := openPipes(false)
	if err != nil {
		return nil, fmt.Errorf("probe isolation: %w", err)
	}
	defer p.close()
	shim, err := startShim(p)
	if err != nil {
		return nil, fmt.Errorf("probe isolation: %w", err)
	}
	until := time.Now().Add(probeTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	_ = p.orders.SetWriteDeadline(until)
	_ = p.reports.SetReadDeadline(until)
	var r report
	err = json.NewEncoder(p.orders).Encode(order{Probe: true, Try: try})
	if err == nil {
		err = json.NewDecoder(p.reports).Decode(&r)
	}
	_ = shim.Kill() // it has answered, or it never will
	_, _ = shim.Wait()
	switch {
	case err != nil:
		return nil, fmt.Errorf("probe isolation: %w", err)
	case r.Kind != reportProbe:
		return nil, fmt.Errorf("probe isolation: %s", r.Message)
	}
	if try == nil { // else the shim has told
		r.Features = append(r.Features, sandbox)
	}
	return append(r.Features, surroundings()), nil
}

// probe looks, inside a shim that has prepared itself, at what a program would
// inherit.
func probe() []Feature {
	feature := func(name string, active bool, detail string) Feature {
		return Feature{Name: name, Active: active, Detail: detail}
	}
	sid, _ := unix.Getsid(0)
	deathErr := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	privileges, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var core, files unix.Rlimit
	coreErr := unix.Getrlimit(unix.RLIMIT_CORE, &core)
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	lower := files
	lower.Cur, lower.Max = min(files.Cur, 64), files.Max-1
	limitErr := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower)
	fd, pidfdErr := unix.PidfdOpen(os.Getpid(), 0)
	if pidfdErr == nil {
		_ = unix.Close(fd)
	}
	return []Feature{
		feature("process_group", sid == os.Getpid(), "each program has a session and a process group of its own"),
		// prepare has failed, and nothing got here, if this one is missing.
		feature("subreaper", true, "processes that detach themselves are found and killed with the attempt"),
		feature("parent_death_signal", deathErr == nil, "the program dies with its supervisor"),
		feature("no_new_privileges", privileges == 1, "setuid programs and file capabilities have no effect"),
		feature("resource_limits", limitErr == nil, "limits of a request are set before its program starts"),
		feature("no_core_dumps", coreErr == nil && core.Max == 0, "a crash writes no memory image"),
		feature("clean_descriptors", unix.CloseRange(1000, 1001, unix.CLOSE_RANGE_CLOEXEC) == nil, "programs get no descriptor beside standard input and output"),
		feature("pidfd", pidfdErr == nil, "a signal cannot reach a stranger that was given a recycled pid"),
	}
}

// surroundings is the feature that does not depend on a shim.
func surroundings() Feature {
	user := Feature{Name: "unprivileged_user", Active: os.Geteuid() != 0,
		Detail: fmt.Sprintf("programs run as the worker's user, uid %d", os.Geteuid())}
	if !user.Active {
		user.Detail = "the worker runs as root, and so do its programs: run it as a user of its own"
	}
	return user
}
