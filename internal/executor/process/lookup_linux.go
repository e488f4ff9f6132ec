package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// startError says why a program could not be started.
type startError struct {
	program string
	path    string // the PATH that was searched, for a name without a slash
	errno   unix.Errno
	detail  string // replaces the text of errno
}

func (e *startError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "start %q: ", e.program)
	switch {
	case e.detail != "":
		b.WriteString(e.detail)
	case e.errno == unix.ENOENT && e.path != "":
		b.WriteString("no such program")
	case e.errno == unix.EACCES:
		b.WriteString("no permission to execute it")
	case e.errno == unix.ENOEXEC:
		b.WriteString("it is neither a program of this machine nor a script with a #! line")
	default:
		b.WriteString(e.errno.Error())
	}
	if e.path != "" {
		fmt.Fprintf(&b, " (PATH is %s)", e.path)
	}
	return b.String()
}

// retryable says whether another attempt could start the program: not when the
// reason is the file or the request, but when it is a machine that is short of
// something.
func (e *startError) retryable() bool {
	switch e.errno {
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ETXTBSY, unix.EIO, unix.EINTR:
		return true
	default:
		return false
	}
}

// lookup finds the file of a program as execvp would: a name with a slash as it
// is, relative to the working directory, any other in the directories of path.
// Relative entries of path, also empty ones, are skipped: the working directory
// is no place to find programs in.
func lookup(program, path, dir string) (string, error) {
	if strings.Contains(program, "/") {
		file := program
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if errno := executable(file); errno != 0 {
			return "", &startError{program: program, errno: errno}
		}
		return file, nil
	}
	found := unix.ENOENT
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			continue
		}
		file := filepath.Join(entry, program)
		switch errno := executable(file); errno {
		case 0:
			return file, nil
		case unix.EACCES:
			found = errno
		}
	}
	return "", &startError{program: program, path: path, errno: found}
}

func executable(file string) unix.Errno {
	var stat unix.Stat_t
	err := unix.Stat(file, &stat)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EACCES
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
	}
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return errno
}
