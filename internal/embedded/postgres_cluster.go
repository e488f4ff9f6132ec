package embedded

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// layout names the files in a data directory of PostgreSQL:
//
//	cluster/        what PostgreSQL calls PGDATA; owned by the user it runs as
//	cluster.new-*   a cluster that initdb has not finished
//	password        of the superuser, mode 0600
//	postgres.log    what the server says
//	run/            the unix socket, where the path is short enough
//	lock            held by the Millrace process that runs the server
type layout string

func (l layout) cluster() string     { return filepath.Join(string(l), "cluster") }
func (l layout) newClusters() string { return filepath.Join(string(l), "cluster.new-") }
func (l layout) password() string    { return filepath.Join(string(l), "password") }
func (l layout) serverLog() string   { return filepath.Join(string(l), "postgres.log") }
func (l layout) postmaster() string  { return filepath.Join(l.cluster(), "postmaster.pid") }

// socketPathMax is what the kernel takes for the path of a unix socket: 107
// bytes on Linux, 103 elsewhere.
const socketPathMax = 103

// socketDir is where the unix socket lies: in the data directory where the path
// is short enough, else in a directory of the system's that is named after it, so
// that the connection string is the same after a restart.
func (l layout) socketDir() string {
	dir := filepath.Join(string(l), "run")
	// PostgreSQL appends a lock file to the name of the socket.
	if len(filepath.Join(dir, ".s.PGSQL.65535.lock")) <= socketPathMax {
		return dir
	}
	sum := sha256.Sum256([]byte(l))
	return filepath.Join(os.TempDir(), "millrace-pg-"+hex.EncodeToString(sum[:8]))
}

// hba admits password holders only, over the socket and loopback.
const hba = `# Written by Millrace.
# TYPE  DATABASE  USER  ADDRESS        METHOD
local   all       all                  scram-sha-256
host    all       all   127.0.0.1/32   scram-sha-256
host    all       all   ::1/128        scram-sha-256
`

// tuning fits a machine that runs everything: modest memory, enough connections
// for all roles in one process, fewer checkpoints. Durability stays as it is.
const tuning = `
# ---- Written by Millrace. Lines after these win. ----
max_connections = 200
shared_buffers = 128MB
wal_compression = on
max_wal_size = 2GB
checkpoint_timeout = 15min
random_page_cost = 1.1
jit = off
autovacuum_naptime = 15s
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] '
log_checkpoints = off
lc_messages = 'C'
`

// makeDataDir makes the data directory. As root others may enter it, since the
// server runs as another user; each file in it protects itself.
func makeDataDir(lay layout, user runUser) error {
	make := func(dir string) error { return os.MkdirAll(dir, 0o700) }
	if user.drop {
		make = makeOpenDir
	}
	if err := make(string(lay)); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

// makeOpenDir makes a directory and its missing parents, which all users may
// enter whatever the umask is. Directories that exist stay as they are.
func makeOpenDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if err := makeOpenDir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// ensureCluster makes the cluster unless there is one and returns the password.
// A cluster appears under its name by a rename, once it is complete: what a
// killed initdb has left has another name and is removed.
func ensureCluster(ctx context.Context, lay layout, bin binaries, user runUser, settings map[string]string) (string, error) {
	if _, err := os.Stat(lay.cluster()); err == nil {
		password, err := os.ReadFile(lay.password())
		if err != nil {
			return "", fmt.Errorf("read the password of the cluster: %w", err)
		}
		return strings.TrimSpace(string(password)), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for the cluster: %w", err)
	}

	leftovers, err := filepath.Glob(lay.newClusters() + "*")
	if err != nil {
		return "", err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("remove unfinished cluster: %w", err)
		}
	}
	staging, err := os.MkdirTemp(string(lay), filepath.Base(lay.newClusters()))
	if err != nil {
		return "", fmt.Errorf("create cluster: %w", err)
	}
	defer os.RemoveAll(staging) // what is left after a failure
	password := rand.Text()
	if err := initCluster(ctx, staging, password, bin, user, settings["fsync"] != "off"); err != nil {
		return "", fmt.Errorf("create cluster: %w", err)
	}
	// The password goes first: a cluster without one would be locked for good.
	if err := replaceFile(lay.password(), password+"\n", 0o600); err != nil {
		return "", fmt.Errorf("write password: %w", err)
	}
	if err := os.Rename(filepath.Join(staging, "cluster"), lay.cluster()); err != nil {
		return "", fmt.Errorf("create cluster: %w", err)
	}
	return password, syncDir(string(lay))
}

// initCluster runs initdb into a cluster folder of staging and writes our
// configuration. The password is handed over in a file of the server's user.
func initCluster(ctx context.Context, staging, password string, bin binaries, user runUser, sync bool) error {
	if err := user.own(staging); err != nil {
		return err
	}
	cluster, pwfile := filepath.Join(staging, "cluster"), filepath.Join(staging, "pw")
	if err := os.WriteFile(pwfile, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if err := user.own(pwfile); err != nil {
		return err
	}
	args := []string{"-D", cluster, "-U", PostgresUser, "--pwfile", pwfile, "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "--data-checksums", "--no-instructions"}
	if bin.major >= 17 {
		// Case mapping for all of Unicode, and no dependence on the C library.
		args = append(args, "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
	}
	if !sync {
		args = append(args, "--no-sync")
	}
	if err := user.run(ctx, staging, bin.path("initdb"), args...); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(cluster, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(cluster, "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(tuning)
	return errors.Join(err, conf.Sync(), conf.Close())
}

// makeSocketDir makes the directory of the socket for the server's user alone.
// One that somebody else made in a shared directory is refused: they could put a
// server of their own there and learn the password.
func makeSocketDir(dir string, user runUser) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create socket directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("create socket directory: %w", err)
	}
	owner, _ := ownerOf(info)
	ours := owner == user.uid || int(owner) == os.Geteuid()
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ours {
		return fmt.Errorf("create socket directory: %s exists but is not a private directory of %s: remove it", dir, user)
	}
	if err := user.own(dir); err != nil {
		return fmt.Errorf("create socket directory: %w", err)
	}
	return user.canEnter(dir, "TMPDIR")
}

// serverLogMax is when the server's log is set aside at a start.
const serverLogMax = 16 << 20

// openServerLog opens the log for appending and tells where this run begins in
// it. One older log is kept.
func openServerLog(lay layout) (file *os.File, from int64, err error) {
	if info, err := os.Stat(lay.serverLog()); err == nil && info.Size() > serverLogMax {
		if err := os.Rename(lay.serverLog(), lay.serverLog()+".1"); err != nil {
			return nil, 0, fmt.Errorf("rotate server log: %w", err)
		}
	}
	file, err = os.OpenFile(lay.serverLog(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open server log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// tailOf returns the last lines of a log from an offset on, indented, for an
// error message.
func tailOf(path string, from int64) string {
	const lines, most = 15, 16 << 10
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, from, 1<<20))
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text[max(0, len(text)-most):])
	all := strings.Split(string(text), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}

// replaceFile writes a file so that a crash leaves the old content or the new.
func replaceFile(path, content string, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	_, err = tmp.WriteString(content)
	if err := errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
