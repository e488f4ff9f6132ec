package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/embedded/child"
)

// runUser is who the server runs as.
type runUser struct {
	uid, gid uint32
	// drop tells that this process is root and has to become the user.
	drop bool
}

func (u runUser) String() string {
	if known, err := user.LookupId(strconv.Itoa(int(u.uid))); err == nil {
		return fmt.Sprintf("user %q", known.Username)
	}
	return fmt.Sprintf("user %d", u.uid)
}

// chooseUser decides who the server runs as. An ordinary user runs it himself;
// for root it is the owner of the cluster, else who called sudo, else nobody.
func chooseUser(lay layout) (runUser, error) {
	self := runUser{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	info, err := os.Stat(lay.cluster())
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runUser{}, fmt.Errorf("look for the cluster: %w", err)
	}
	if self.uid != 0 {
		if !exists {
			return self, nil
		}
		if uid, _ := ownerOf(info); uid != self.uid {
			return runUser{}, fmt.Errorf("%s belongs to %s, and only they or root can run PostgreSQL on it",
				lay.cluster(), runUser{uid: uid})
		}
		return self, nil
	}
	if exists {
		uid, gid := ownerOf(info)
		if uid == 0 {
			return runUser{}, fmt.Errorf("%s belongs to root, and PostgreSQL does not run as root: give it to another user", lay.cluster())
		}
		return runUser{uid: uid, gid: gid, drop: true}, nil
	}
	if u, ok := sudoUser(); ok {
		return u, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return runUser{}, fmt.Errorf("PostgreSQL does not run as root: find another user for it: %w", err)
	}
	return parseUser(nobody.Uid, nobody.Gid)
}

func sudoUser() (runUser, bool) {
	u, err := parseUser(os.Getenv("SUDO_UID"), os.Getenv("SUDO_GID"))
	return u, err == nil && u.uid != 0
}

func parseUser(uid, gid string) (runUser, error) {
	u, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return runUser{}, fmt.Errorf("user id %q: %w", uid, err)
	}
	g, err := strconv.ParseUint(gid, 10, 32)
	if err != nil {
		return runUser{}, fmt.Errorf("group id %q: %w", gid, err)
	}
	return runUser{uid: uint32(u), gid: uint32(g), drop: true}, nil
}

// own gives a file that we made to the user.
func (u runUser) own(path string) error {
	if !u.drop {
		return nil
	}
	return os.Lchown(path, int(u.uid), int(u.gid))
}

// canEnter checks that the user can get to dir, and names the directory in the
// way when not. Without this the server fails with "Permission denied" about a
// path that root, who looks at it, has every right to.
func (u runUser) canEnter(dir, setting string) error {
	if !u.drop {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if !u.mayEnter(info) {
			hint := ""
			if setting != "" {
				hint = " with " + setting
			}
			return fmt.Errorf("PostgreSQL does not run as root, so it runs as %s, who cannot enter %s (mode %04o): "+
				"choose another data directory%s, for example under /var/lib, or start as an ordinary user",
				u, at, info.Mode().Perm(), hint)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func (u runUser) mayEnter(info fs.FileInfo) bool {
	uid, gid := ownerOf(info)
	switch mode := info.Mode().Perm(); {
	case uid == u.uid:
		return mode&0o100 != 0
	case gid == u.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// command prepares a program to run as the user. The environment is scrubbed:
// variables such as PGDATA or PGPORT would change what the programs do.
func (u runUser) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + filepath.Dir(path) + ":/usr/local/bin:/usr/bin:/bin"}
	if v, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if u.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid}
	}
	return cmd
}

// run runs a program to its end in dir; its output becomes part of the error.
func (u runUser) run(ctx context.Context, dir, path string, args ...string) error {
	cmd := u.command(path, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w\n  %s", filepath.Base(path), err,
			strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n  "))
	}
	return nil
}

// ownerOf returns the user and group of a file.
func ownerOf(info fs.FileInfo) (uid, gid uint32) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0 // not a file of the operating system: only root's rights are safe to assume
	}
	return stat.Uid, stat.Gid
}
