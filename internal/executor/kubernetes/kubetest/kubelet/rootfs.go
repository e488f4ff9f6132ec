package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ProgramPath is where containers find the program of Config.Program.
const ProgramPath = "/kubetest/program"

// shared are the folders of this machine that the root of every container shows, read
// only. Together with ProgramPath they are what all "images" consist of.
var shared = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt"} //nolint:gochecknoglobals // a constant that Go has no word for

// mount is a folder or a file that a container sees.
type mount struct {
	from, to string
	readOnly bool
}

// tools are the programs with which roots are built, by their paths.
type tools struct{ sh, chroot, setpriv string }

func findTools() (tools, error) {
	var t tools
	for name, into := range map[string]*string{"sh": &t.sh, "chroot": &t.chroot, "setpriv": &t.setpriv} {
		path, err := exec.LookPath(name)
		if err != nil {
			for _, dir := range []string{"/usr/sbin", "/sbin"} {
				if _, statErr := os.Stat(filepath.Join(dir, name)); statErr == nil {
					path, err = filepath.Join(dir, name), nil
				}
			}
		}
		if err != nil {
			return t, fmt.Errorf("find %s: %w", name, err)
		}
		*into = path
	}
	if _, err := exec.LookPath("mount"); err != nil {
		return t, fmt.Errorf("find mount: %w", err)
	}
	return t, nil
}

// quote makes one word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// rootScript is what the first process of a container does, as root of its own mount and
// process namespaces: it builds the root of the container on a tmpfs, goes into it, and
// becomes the command ("$@"). Whatever fails before that is told on descriptor 3, which is
// closed when the command begins.
func (c *container) rootScript(t tools) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	root := quote(c.root)
	line("exec 4>&2 2>&3")
	line("set -e")
	line("saved=$PATH; PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; R=%s", root)
	line("mount --make-rprivate /")
	line(`mount -t tmpfs -o mode=755 tmpfs "$R"`)
	for _, dir := range shared {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink(dir); err == nil {
				line(`ln -s %s "$R"%s`, quote(target), dir)
			}
		default:
			line(`mkdir "$R"%s; mount --rbind %s "$R"%s; mount -o remount,bind,ro "$R"%s`, dir, dir, dir, dir)
		}
	}
	line(`mkdir -p "$R"/proc "$R"/dev "$R"/run "$R"/var/tmp "$R"/root "$R"/home "$R"/mnt "$R"/tmp "$R"/kubetest; chmod 1777 "$R"/tmp "$R"/var/tmp`)
	line(`ln -s ../run "$R"/var/run`)
	line(`mount -t proc proc "$R"/proc`)
	line(`mount -t tmpfs -o mode=755 tmpfs "$R"/dev; mkdir "$R"/dev/shm; chmod 1777 "$R"/dev/shm`)
	line(`for d in null zero full random urandom tty; do touch "$R/dev/$d"; mount --bind "/dev/$d" "$R/dev/$d"; done`)
	line(`ln -s /proc/self/fd "$R"/dev/fd; ln -s fd/0 "$R"/dev/stdin; ln -s fd/1 "$R"/dev/stdout; ln -s fd/2 "$R"/dev/stderr`)
	for _, m := range c.mounts {
		to := `"$R"` + quote(m.to)
		if info, err := os.Stat(m.from); err == nil && !info.IsDir() {
			line(`mkdir -p %s; [ -e %s ] || : >%s`, `"$R"`+quote(filepath.Dir(m.to)), to, to)
		} else {
			line(`mkdir -p %s`, to)
		}
		line(`mount --bind %s %s`, quote(m.from), to)
		if m.readOnly {
			line(`mount -o remount,bind,ro %s`, to)
		}
	}
	if c.workingDir != "" {
		line(`[ -d "$R"%s ] || mkdir -p "$R"%s`, quote(c.workingDir), quote(c.workingDir))
	}
	if c.readOnlyRoot {
		line(`mount -o remount,bind,ro "$R"`)
	}
	line("PATH=$saved")
	line(`exec %s "$R" %s -c %s sh "$@"`, t.chroot, t.sh, quote(c.entryScript(t)))
	return b.String()
}

// entryScript is what the first process does within the root: it looks for the command,
// gives up its rights and becomes it.
func (c *container) entryScript(t tools) string {
	var b strings.Builder
	dir := c.workingDir
	if dir == "" {
		dir = "/"
	}
	fmt.Fprintf(&b, "cd %s || exit 125\n", quote(dir))
	b.WriteString(`case "$1" in
*/*) if [ ! -e "$1" ]; then echo "exec: \"$1\": stat $1: no such file or directory" >&3; exit 127; fi
     if [ ! -x "$1" ] || [ -d "$1" ]; then echo "exec: \"$1\": permission denied" >&3; exit 126; fi ;;
*) if ! command -v "$1" >/dev/null 2>&1; then echo "exec: \"$1\": executable file not found in \$PATH" >&3; exit 127; fi ;;
esac
`)
	identity := ""
	if c.asRoot {
		identity = fmt.Sprintf("--reuid=%d --regid=%d --clear-groups", c.uid, c.gid)
	}
	if c.noNewPrivileges {
		identity += " --no-new-privs"
	}
	if !c.beside {
		fmt.Fprintf(&b, "exec 2>&4 3>&- 4>&-\n")
		fmt.Fprintf(&b, "exec %s %s --pdeathsig KILL -- \"$@\"\n", t.setpriv, identity)
		return b.String()
	}
	// The shell stays as the first process, hands signals on, and ends as the command does.
	fmt.Fprintf(&b, "%s %s --pdeathsig KILL -- \"$@\" 2>&4 3>&- 4>&- &\n", t.setpriv, identity)
	b.WriteString(`command=$!
trap 'kill -TERM $command' TERM
exec >/dev/null 2>&1 3>&- 4>&-
while :; do
	wait $command
	code=$?
	kill -0 $command || exit $code
done
`)
	return b.String()
}
