package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sandboxProgram is the name of bubblewrap's program.
const sandboxProgram = "bwrap"

// findSandbox returns the path of bubblewrap if programs are to run inside it:
// empty when they are not, an error when they must and cannot.
func findSandbox(c Config) (string, error) {
	if c.Sandbox.off() {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	features, err := Isolation(ctx, c.Sandbox)
	if err != nil {
		return "", err
	}
	for _, f := range features {
		switch {
		case f.Name != featureSandbox:
		case f.Active:
			return exec.LookPath(sandboxProgram)
		case c.Sandbox.Mode == SandboxRequired:
			return "", fmt.Errorf("sandbox is required: %s", f.Detail)
		default:
			c.Logger.Warn("programs run without a sandbox", slog.String("cause", f.Detail))
		}
	}
	return "", nil
}

// argv is the command line of bubblewrap up to the program's own. A dir of "" is
// none, for the probe.
func (s Sandbox) argv(program, dir string) []string {
	argv := []string{
		program,
		// The order counts: what comes later lies on top of what came before.
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--cap-drop", "ALL", "--die-with-parent",
	}
	if s.NoNetwork {
		argv = append(argv, "--unshare-net")
	}
	for _, m := range s.mounts() {
		argv = append(argv, m...)
	}
	if dir != "" {
		told, checkpoint := reportPath(dir), checkpointPath(dir)
		argv = append(argv, "--bind", dir, dir, "--chdir", dir,
			"--bind-try", told, told, "--ro-bind-try", checkpoint, checkpoint)
	}
	return append(argv, "--")
}

// mounts are the options for the directories that are hidden or writable, the deeper
// ones later: what is said of a directory holds for what lies in it, unless that is
// named itself.
func (s Sandbox) mounts() [][]string {
	options := make(map[string][]string, len(s.Hidden)+len(s.Writable))
	for _, writable := range s.Writable {
		writable = filepath.Clean(writable)
		options[writable] = []string{"--bind-try", writable, writable}
	}
	for _, hidden := range s.Hidden {
		hidden = filepath.Clean(hidden)
		if info, err := os.Stat(hidden); err == nil && info.IsDir() {
			options[hidden] = []string{"--tmpfs", hidden}
		}
	}
	var list [][]string
	for _, path := range slices.Sorted(maps.Keys(options)) { // a directory sorts before what lies in it
		list = append(list, options[path])
	}
	return list
}

// wrap has the program of an order run inside the sandbox.
func (s Sandbox) wrap(program string, start startOrder) startOrder {
	// argv[0] is what the path is: bubblewrap knows no other.
	start.Argv = append(append(s.argv(program, start.Dir), start.Path), start.Argv[1:]...)
	start.Path, start.Sandboxed = program, true
	return start
}

// probeSandbox tries, inside a shim, whether the sandbox can be set up: it runs
// bubblewrap's own program in it, the one program that is known to be there.
func probeSandbox(argv []string) Feature {
	f := Feature{Name: featureSandbox}
	var text strings.Builder
	cmd := exec.Command(argv[0], append(argv[1:], argv[0], "--version")...)
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	said := strings.TrimSpace(text.String())
	if err != nil {
		f.Detail = argv[0] + " does not work here: " + cmp.Or(said, err.Error()) + "; " + withoutSandbox
		return f
	}
	f.Active = true
	f.Detail = "programs see files read-only, no processes but their own, and write to their working directory only (" + said + ")"
	return f
}

// withoutSandbox is what holds when bubblewrap is not used.
const withoutSandbox = "programs see the files and the network of the worker's user"

// sandboxFeature is what there is to say without trying.
func sandboxFeature(s Sandbox) (f Feature, try []string) {
	f.Name = featureSandbox
	path, err := exec.LookPath(sandboxProgram)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.Detail = "bwrap is not installed; " + withoutSandbox
	case err != nil:
		f.Detail = err.Error() + "; " + withoutSandbox
	case s.off():
		f.Detail = "found at " + path + ", but worker.sandbox.mode is off: " + withoutSandbox
	default:
		return f, s.argv(path, "")
	}
	return f, nil
}
