package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
)

// The folders that Millrace makes in a data directory.
const (
	BrokerDir   = "kafka"
	PostgresDir = "postgres"
	WorkDir     = "work"
)

// Entry is something of Millrace's own in a data directory.
type Entry struct {
	Name string `json:"name"`
	// Bytes is how much its files hold.
	Bytes int64 `json:"bytes"`
}

// Entries returns what Millrace has made in the directory, sorted by name; none
// when the directory does not exist. What it does not know is not in the list.
func Entries(dir string) ([]Entry, error) {
	listed, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	var entries []Entry
	for _, e := range listed {
		if !ours(dir, e) {
			continue
		}
		bytes, err := size(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", e.Name(), err)
		}
		entries = append(entries, Entry{Name: e.Name(), Bytes: bytes})
	}
	return entries, nil
}

// ours says whether we made an entry. A folder has to look like ours as well: a
// folder "work" is something that others have, too.
func ours(dir string, e fs.DirEntry) bool {
	name := e.Name()
	switch {
	case name == BrokerDir, name == PostgresDir:
		return e.IsDir() && exists(filepath.Join(dir, name, "lock"))
	case name == WorkDir:
		return e.IsDir() && (exists(filepath.Join(dir, configs.TokenFile(""))) ||
			exists(filepath.Join(dir, BrokerDir, "lock")) || exists(filepath.Join(dir, PostgresDir, "lock")))
	case !e.Type().IsRegular():
		return false
	case name == pidFile, slices.Contains(configs.DataFiles(), name):
		return true
	}
	// What a process that was killed while it wrote has left.
	return slices.ContainsFunc(configs.DataFiles(), func(file string) bool {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "."), file)
		return ok && len(rest) > 1 && strings.ContainsAny(rest[:1], ".-") && strings.Trim(rest[1:], "0123456789") == ""
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func size(path string) (int64, error) {
	var total int64
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// Remove deletes the entries. It refuses, with an *InUseError or an error that
// wraps embedded.ErrInUse, while an instance runs on the directory or a server of
// one that was killed still shuts down, and keeps new ones out meanwhile. Removal
// goes on behind an entry that cannot be removed.
func Remove(dir string, entries []Entry) error {
	claim, err := Take(dir)
	if err != nil {
		return err
	}
	defer func() { _ = claim.Release() }() // the file is gone by then, mostly
	for _, server := range []string{BrokerDir, PostgresDir} {
		if err := embedded.CheckFree(filepath.Join(dir, server)); err != nil {
			return err
		}
	}
	var errs []error
	for _, e := range entries {
		if e.Name != pidFile { // the claim's own, which goes at its end
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name)))
		}
	}
	return errors.Join(errs...)
}
