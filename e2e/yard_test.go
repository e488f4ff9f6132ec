package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/sagas/execution"
)

const (
	workloadSaga = "workload"
	briefSaga    = "brief-workload"
	// brief is how long a brief workload may be in the making, and how long it may take.
	brief = 3 * time.Second
)

func newWorkloads() (sagas.Saga, error) {
	return execution.New(execution.Config{Workloads: yard{os.Getenv(sagaProgram)}, Name: workloadSaga})
}

func newBriefWorkloads() (sagas.Saga, error) {
	return execution.New(execution.Config{
		Workloads: yard{os.Getenv(sagaProgram)}, Name: briefSaga, Limit: brief, CreateWithin: brief,
	})
}

// yard is a directory in which workloads run: processes that know nothing of who has
// started them and outlive him, as pods do. The directory of a workload is made once, by
// the workload itself or by who deletes it first; that is what keeps out whatever comes
// late. Beside it lies NAME.log, in which it is counted what was really done.
type yard struct{ dir string }

var _ execution.Workloads = yard{}

// task is the Spec of a workload.
type task struct {
	Run string `json:"run"`
	// Crash has the program die where it passes one of these the first time: creating,
	// created, deleted.
	Crash []string `json:"crash,omitempty"`
}

const workloadScript = `mkdir "$W" 2>/dev/null || exit 0
echo started >> "$W.log"
echo $$ > "$W/pid.new" && mv "$W/pid.new" "$W/pid"
sh -c "$RUN"
echo $? > "$W/exit.new" && mv "$W/exit.new" "$W/exit"
`

func (y yard) path(name, file string) string { return filepath.Join(y.dir, name, file) }

// Create implements execution.Workloads.
func (y yard) Create(ctx context.Context, w execution.Workload) (json.RawMessage, error) {
	var t task
	if err := json.Unmarshal(w.Spec, &t); err != nil {
		return nil, sagas.Fail("invalid_spec", "%v", err)
	}
	if err := os.MkdirAll(y.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(y.dir, w.Name+".spec"), w.Spec, 0o600); err != nil {
		return nil, err
	}
	y.dieAt(w.Name, "creating")
	cmd := exec.Command("sh", "-c", workloadScript)
	cmd.Env = append(os.Environ(), "W="+filepath.Join(y.dir, w.Name), "RUN="+t.Run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // how it ended is in its directory
	pid, err := y.pid(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	y.dieAt(w.Name, "created")
	return fmt.Appendf(nil, `{"pid": %d}`, pid), nil
}

// pid waits until the workload of that name has said its process id.
func (y yard) pid(ctx context.Context, name string) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(y.path(name, "deleted")); err == nil {
			return 0, execution.ErrDeleted
		}
		if text, err := os.ReadFile(y.path(name, "pid")); err == nil {
			return strconv.Atoi(strings.TrimSpace(string(text)))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Observe implements execution.Workloads.
func (y yard) Observe(_ context.Context, name string, _ json.RawMessage) (execution.Observation, error) {
	if _, err := os.Stat(y.path(name, "pid")); errors.Is(err, fs.ErrNotExist) {
		return execution.Observation{Phase: execution.Gone}, nil
	}
	text, err := os.ReadFile(y.path(name, "exit"))
	if errors.Is(err, fs.ErrNotExist) {
		return execution.Observation{Phase: execution.Active}, nil
	}
	if err != nil {
		return execution.Observation{}, err
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	result := execution.Result{Succeeded: code == 0, ExitCode: &code}
	return execution.Observation{Phase: execution.Ended, Result: result}, err
}

// Delete implements execution.Workloads.
func (y yard) Delete(ctx context.Context, name string) error {
	err := os.MkdirAll(y.dir, 0o755)
	if err == nil {
		err = os.Mkdir(filepath.Join(y.dir, name), 0o755)
	}
	switch {
	case err == nil: // there was none, and there will be none
		return os.WriteFile(y.path(name, "deleted"), nil, 0o600)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	pid, err := y.pid(ctx, name)
	if errors.Is(err, execution.ErrDeleted) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
	if once(y.path(name, "deleted")) {
		if err := y.count(name, "deleted"); err != nil {
			return err
		}
	}
	y.dieAt(name, "deleted")
	return nil
}

func (y yard) count(name, what string) error {
	log, err := os.OpenFile(filepath.Join(y.dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintln(log, what)
	return err
}

// once reports whether the file was not there; it is then.
func once(file string) bool {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// dieAt ends this process as kill -9 does, if the workload asks for it there and it is the first
// time.
func (y yard) dieAt(name, where string) {
	text, err := os.ReadFile(filepath.Join(y.dir, name+".spec"))
	var t task
	if err != nil || json.Unmarshal(text, &t) != nil {
		return
	}
	for _, at := range t.Crash {
		if at == where && once(filepath.Join(y.dir, name+".died-"+where)) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}
