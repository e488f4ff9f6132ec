package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(sagaProgram) != "" {
		runSagaProgram()
		return
	}
	testenv.Run(m)
}

// crashable is the build tag of a program that can be made to crash; see
// internal/crash.
const crashable = "crashpoints"

// build returns what builds the program under test, with a build tag or without,
// at the first call. Everybody may run it.
func build(tag string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "millrace-e2e-")
		if err != nil {
			return "", err
		}
		testenv.AtExit(func(context.Context) error { return os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			return "", err
		}
		path := filepath.Join(dir, "millrace")
		args := []string{"build", "-o", path, "-tags", tag}
		if raceDetector {
			args = append(args, "-race")
		}
		if out, err := exec.Command("go", append(args, "../cmd/millrace")...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build millrace: %w\n%s", err, out)
		}
		return path, nil
	})
}

// builds are the programs under test, by build tag.
var builds = map[string]func() (string, error){"": build(""), crashable: build(crashable)}

// binary returns the path of the program under test.
func binary(t testing.TB, tag string) string {
	t.Helper()
	path, err := builds[tag]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// await asks every 50 ms whether something has come true and fails the test when
// it has not within a time that is far beyond what a healthy system needs.
func await(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.Fail(t, fmt.Sprintf("not within %s: %s", within, what))
		}
	}
}

// await waits for what must come true in an installation, however slow the machine is, and
// tells how the installation is if it has not.
func (in *installation) await(what string, ok func() bool) {
	in.t.Helper()
	came := false
	defer func() {
		if !came {
			in.diagnose()
		}
	}()
	await(in.t, stuckAfter, what, func() bool { came = ok(); return came })
}

// workspace makes a directory that other users can enter, which t.TempDir does not.
func workspace(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove workspace: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
