package process

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/spec"
)

// The defaults of Config.
const (
	PathDefault  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	GraceDefault = 2 * time.Second
)

// Config is what an Executor needs. The zero value is usable.
type Config struct {
	// WorkRoot is the directory under which attempts get their working directories.
	// It is created with mode 0700 and must belong to the worker's user; workers
	// may share it. Defaults to millrace-attempts-<uid> in the directory for
	// temporary files.
	WorkRoot string
	// Path is the PATH of programs, and where their names are looked up, unless
	// the spec sets another. Defaults to PathDefault.
	Path string
	// Grace is how long a program that is to be stopped may take between SIGTERM
	// and SIGKILL; never past the end of the lease. Defaults to GraceDefault.
	Grace time.Duration
	// Sandbox puts walls around programs. Defaults to off.
	Sandbox Sandbox
	// Logger gets what goes wrong beside an attempt, such as a directory that
	// cannot be removed. Defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.WorkRoot == "" {
		c.WorkRoot = filepath.Join(os.TempDir(), "millrace-attempts-"+strconv.Itoa(os.Getuid()))
	}
	if c.Path == "" {
		c.Path = PathDefault
	}
	if c.Grace <= 0 {
		c.Grace = GraceDefault
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Executor runs programs. It is safe for concurrent use.
type Executor struct {
	cfg  Config
	dirs *workdirs
	// sandbox is the path of bubblewrap, empty when it is not used.
	sandbox string
}

var _ executor.Executor = (*Executor)(nil)

// New prepares the directory of the executor and removes what workers that are
// gone have left under the same root. Where a sandbox is asked for, it is tried
// first. Close it after the last Run has returned.
func New(cfg Config) (*Executor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Sandbox.validate(); err != nil {
		return nil, fmt.Errorf("prepare process executor: %w", err)
	}
	sandbox, err := findSandbox(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare process executor: %w", err)
	}
	dirs, err := openWorkdirs(cfg.WorkRoot)
	if err != nil {
		return nil, fmt.Errorf("prepare process executor: %w", err)
	}
	return &Executor{cfg: cfg, dirs: dirs, sandbox: sandbox}, nil
}

// Name returns "process".
func (e *Executor) Name() string { return spec.ExecutorProcess }

// Close removes the executor's directory.
func (e *Executor) Close() error { return e.dirs.close() }
