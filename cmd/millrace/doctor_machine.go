package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/process"
)

// dataDir looks at the data directory, or at where it would be made.
func (x *examination) dataDir(config configs.Config) {
	const name = "data directory"
	dir := config.DataDir
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		x.missingDataDir(dir)
		return
	}
	switch {
	case err != nil:
		x.fail(name, err, "name another one with --data-dir")
	case !info.IsDir():
		x.add(checkFail, name, dir+" is not a directory", "name another one with --data-dir")
	case access(dir) != nil:
		x.add(checkFail, name, fmt.Sprintf("%s cannot be written to: %s", dir, access(dir)), "run as its owner, or name another one with --data-dir")
	case info.Mode().Perm()&0o022 != 0:
		x.add(checkFail, name, fmt.Sprintf("%s can be written to by others (mode %04o)", dir, info.Mode().Perm()), "chmod go-w "+dir)
	default:
		x.ok(name, "%s", dir)
	}
}

func (x *examination) missingDataDir(dir string) {
	parent := filepath.Dir(dir)
	for parent != filepath.Dir(parent) {
		if _, err := os.Stat(parent); err == nil {
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := access(parent); err != nil {
		x.add(checkFail, "data directory", fmt.Sprintf("%s does not exist and cannot be made in %s: %s", dir, parent, err), "name another one with --data-dir")
		return
	}
	x.ok("data directory", "%s does not exist yet and can be made", dir)
}

// access says whether a directory can be entered and written to.
func access(dir string) error {
	const writeAndSearch = 2 | 1
	return syscall.Access(dir, writeAndSearch)
}

// ports looks whether the addresses are free.
func (x *examination) ports(ctx context.Context, config configs.Config) {
	running := false
	if endpoints, err := configs.ReadEndpoints(config.DataDir); err == nil && endpoints.URL != "" {
		running = true
	}
	for _, p := range []struct{ path, address string }{
		{"api.listen", config.API.Listen}, {"admin.listen", config.Admin.Listen}, {"grpc.listen", config.GRPC.Listen},
		{"embedded.broker.listen", config.Embedded.Broker.Listen},
	} {
		if p.address == "" {
			continue // it is not wanted
		}
		name := "port of " + p.path
		var listen net.ListenConfig
		listener, err := listen.Listen(ctx, "tcp", p.address)
		switch {
		case err == nil:
			_ = listener.Close() // nobody has connected
			x.ok(name, "%s is free", p.address)
		case errors.Is(err, syscall.EADDRINUSE) && running:
			x.ok(name, "%s is in use, and a Millrace runs on this data directory", p.address)
		case errors.Is(err, syscall.EADDRINUSE):
			x.add(checkWarn, name, p.address+" is in use by another program", "stop it, or set "+p.path+" to another address (port 0 takes a free one)")
		default:
			x.fail(name, err, "set "+p.path+" to an address of this machine")
		}
	}
}

// isolation says which walls around programs hold on this machine. A missing one
// is a warning: Millrace runs without it and says so.
func (x *examination) isolation(ctx context.Context, config configs.Config) {
	sandbox := app.ProcessSandbox(config)
	features, err := process.Isolation(ctx, sandbox)
	if err != nil {
		x.add(checkWarn, "isolation of programs", err.Error(), "the executor process cannot be used here: leave it out of worker.executors")
		return
	}
	for _, f := range features {
		status, advice := checkOK, ""
		switch {
		case f.Active:
		case f.Name != "bubblewrap":
			status = checkWarn
		case sandbox.Mode == process.SandboxRequired:
			status, advice = checkFail, "worker.sandbox.mode is required, so no worker starts here: install bubblewrap and allow user namespaces, or set it to auto"
		case sandbox.Mode == process.SandboxAuto:
			status, advice = checkWarn, "install bubblewrap and allow user namespaces, or set worker.sandbox.mode to off"
		default: // it is told, not missed
			status = checkSkip
		}
		x.add(status, "isolation: "+f.Name, f.Detail, advice)
	}
}
