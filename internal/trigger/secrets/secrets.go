// Package secrets reads what definitions of triggers refer to.
//
// Whoever may apply a trigger decides which reference it has, and sees, by what happens to
// the messages of a broker of theirs, what it refers to. So a reference reaches only what
// the installation has set apart: environment variables of one prefix, and files below one
// folder, symbolic links followed and held to the same folder. The servers' own secrets are
// neither.
//
// A secret is read anew each time, so that one can be replaced without a restart. No error
// holds anything of it.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/trigger"
)

// MaxBytes is how long a secret may be.
const MaxBytes = 1 << 20

// The codes of an Error.
const (
	// CodeMissing: there is no such variable or file on this server, or it is empty.
	CodeMissing = "secret_missing"
	// CodeNotAllowed: the installation does not let triggers refer to it.
	CodeNotAllowed = "secret_not_allowed"
	// CodeUnreadable: the file is there and cannot be read.
	CodeUnreadable = "secret_unreadable"
)

// Error says why a reference leads to nothing. It has the words of a trigger.Cause.
type Error struct{ Code, Message, Hint string }

// Error implements error.
func (e *Error) Error() string { return e.Message + ": " + e.Hint }

// Cause returns it as what stands in the status of a trigger.
func (e *Error) Cause() trigger.Cause {
	return trigger.Cause{Code: e.Code, Message: e.Message, Hint: e.Hint}
}

// Resolver reads secrets. It is safe for concurrent use.
type Resolver struct {
	allowed trigger.Secrets
	lookup  func(string) (string, bool)
}

// New returns a Resolver of what is allowed.
func New(allowed trigger.Secrets) *Resolver {
	return &Resolver{allowed: allowed, lookup: os.LookupEnv}
}

// Resolve reads the secret that r refers to. The zero reference is the zero Secret. White
// space at the end of a file is no part of it. The error is an *Error.
func (r *Resolver) Resolve(ref trigger.SecretRef) (secret.Secret, error) {
	if ref.IsZero() {
		return secret.Secret{}, nil
	}
	if err := r.allowed.Check(ref); err != nil {
		return secret.Secret{}, &Error{Code: CodeNotAllowed, Message: fmt.Sprintf("%s %s", name(ref), err.Message), Hint: err.Hint}
	}
	if ref.Env != "" {
		return r.env(ref)
	}
	return r.file(ref)
}

// name names a reference in messages.
func name(ref trigger.SecretRef) string {
	if ref.Env != "" {
		return "the environment variable " + ref.Env
	}
	return fmt.Sprintf("the file %q", ref.File)
}

func (r *Resolver) env(ref trigger.SecretRef) (secret.Secret, error) {
	text, set := r.lookup(ref.Env)
	if !set || text == "" {
		return secret.Secret{}, &Error{
			Code: CodeMissing, Message: name(ref) + " is not set",
			Hint: "set it for every server that runs triggers or serves webhooks, and restart them",
		}
	}
	return secret.New(text), nil
}

func (r *Resolver) file(ref trigger.SecretRef) (secret.Secret, error) {
	relative := strings.TrimPrefix(ref.File, strings.TrimSuffix(r.allowed.Dir, "/")+"/")
	text, err := read(r.allowed.Dir, filepath.FromSlash(relative))
	if err != nil {
		return secret.Secret{}, fileError(ref, err)
	}
	text = strings.TrimRight(text, "\r\n\t ")
	if text == "" {
		return secret.Secret{}, &Error{Code: CodeMissing, Message: name(ref) + " is empty", Hint: "write the secret into it"}
	}
	return secret.New(text), nil
}

var (
	errNotAFile = errors.New("it is not a file")
	errTooLarge = fmt.Errorf("it has more than %d bytes", MaxBytes)
)

// read reads a file below a folder; a link that leads out of it is an error.
func read(folder, name string) (text string, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	// Opening a pipe would wait for its writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errNotAFile
	}
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(raw) > MaxBytes {
		err = errTooLarge
	}
	return string(raw), err
}

// fileError says in words why a file could not be read.
func fileError(ref trigger.SecretRef, err error) *Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{
			Code: CodeMissing, Message: name(ref) + " is not there",
			Hint: "put it below the folder of secrets (triggers.secrets.dir) of every server that runs triggers or serves webhooks",
		}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Code: CodeUnreadable, Message: name(ref) + " may not be read", Hint: "let the user that the server runs as read it"}
	case strings.Contains(err.Error(), "escapes from parent"):
		return &Error{Code: CodeNotAllowed, Message: name(ref) + " leads out of the folder of secrets", Hint: "links may point to files of that folder only"}
	default:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return &Error{Code: CodeUnreadable, Message: name(ref) + " cannot be read: " + err.Error(), Hint: "look at the file on the server"}
	}
}
