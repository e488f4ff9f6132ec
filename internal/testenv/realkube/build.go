package realkube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The versions that are built. tools/kube pins them with all that they take.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.6"
)

// ErrMissing is the error of Find where nothing was built yet.
var ErrMissing = errors.New("kube-apiserver and etcd are not built: run make kube (some five minutes of CPU, once)")

// Binaries are the programs, by their paths.
type Binaries struct{ APIServer, Etcd string }

// program is one of the programs that are built.
type program struct {
	name, module, pkg, flags string
	// saysVersion is the first line of what it answers to --version.
	saysVersion string
}

func programs() []program {
	const about = "k8s.io/component-base/version"
	number := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	return []program{
		{
			name: "etcd", module: "etcd", pkg: "go.etcd.io/etcd/server/v3", flags: "-s -w",
			saysVersion: "etcd Version: " + strings.TrimPrefix(EtcdVersion, "v"),
		},
		{
			name: "kube-apiserver", module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-apiserver",
			flags:       fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", about, KubernetesVersion, about, number[0], about, number[1]),
			saysVersion: "Kubernetes " + KubernetesVersion,
		},
	}
}

// home is the folder of the programs.
func home() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "millrace", "kube-"+KubernetesVersion+"-etcd-"+EtcdVersion), nil
}

func in(dir string) Binaries {
	return Binaries{APIServer: filepath.Join(dir, "kube-apiserver"), Etcd: filepath.Join(dir, "etcd")}
}

// Find returns the programs if they were built, and ErrMissing otherwise.
func Find() (Binaries, error) {
	dir, err := home()
	if err != nil {
		return Binaries{}, fmt.Errorf("find kube-apiserver: %w", err)
	}
	b := in(dir)
	for _, path := range []string{b.APIServer, b.Etcd} {
		if _, err := os.Stat(path); err != nil {
			return Binaries{}, ErrMissing
		}
	}
	return b, nil
}

// Build builds the programs from the modules below source (tools/kube of a checkout), unless
// they are there. Progress gets a line for each that is built.
//
// Several processes may call it at once: one builds, the others wait.
func Build(ctx context.Context, source string, progress io.Writer) (Binaries, error) {
	if b, err := Find(); err == nil {
		return b, nil
	}
	dir, err := home()
	if err != nil {
		return Binaries{}, fmt.Errorf("build kube-apiserver: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("build kube-apiserver: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return Binaries{}, fmt.Errorf("build kube-apiserver: %w", err)
	}
	defer unlock()
	for _, p := range programs() {
		if err := p.build(ctx, source, dir, progress); err != nil {
			return Binaries{}, fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	return Find()
}

// build builds one program and sees that it is what it should be. It appears under its
// name when it is complete.
func (p program) build(ctx context.Context, source, dir string, progress io.Writer) error {
	path := filepath.Join(dir, p.name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintf(progress, "building %s\n", p.name)
	part := path + ".part"
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-ldflags", p.flags, "-o", part, p.pkg)
	cmd.Dir = filepath.Join(source, p.module)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(string(out), 20))
	}
	said, err := exec.CommandContext(ctx, part, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask for its version: %w", err)
	}
	if !strings.HasPrefix(string(said), p.saysVersion+"\n") {
		return fmt.Errorf("it says that it is %q, and %q was to be built", strings.SplitN(string(said), "\n", 2)[0], p.saysVersion)
	}
	return os.Rename(part, path)
}

// lock waits for an exclusive lock, which the kernel releases when the process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		if err := pause(ctx, lockPoll); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
