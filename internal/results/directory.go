package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// suffix is that of a value that is being written.
const suffix = ".part"

// Directory keeps values as files. All workers and servers of an installation must
// have the same directory.
type Directory struct{ dir string }

var _ Blobs = (*Directory)(nil)

// NewDirectory returns Blobs in a directory, which is made (with mode 0700) when it
// does not exist.
func NewDirectory(dir string) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for results: %w", err)
	}
	return &Directory{dir: dir}, nil
}

// Name implements Blobs.
func (d *Directory) Name() string { return NameDirectory }

// path is where a value is. Ids are UUIDs by the type of their column; the last two
// digits, which are random, spread the files.
func (d *Directory) path(id string) string { return filepath.Join(d.dir, id[len(id)-2:], id) }

// Write implements Blobs: the file, its name and its folder are on the disk when it
// returns.
func (d *Directory) Write(_ context.Context, _ pgx.Tx, id string, value []byte) error {
	path := d.path(id)
	folder := filepath.Dir(path)
	if err := os.Mkdir(folder, 0o700); err == nil {
		if err := syncDir(d.dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make folder for result: %w", err)
	}
	if err := writeSynced(path+suffix, value); err != nil {
		_ = os.Remove(path + suffix)
		return err
	}
	if err := os.Rename(path+suffix, path); err != nil {
		return fmt.Errorf("name result: %w", err)
	}
	return syncDir(folder)
}

func writeSynced(path string, value []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create result: %w", err)
	}
	_, err = f.Write(value)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open folder of results: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("write folder of results: %w", err)
	}
	return nil
}

// Open implements Blobs.
func (d *Directory) Open(_ context.Context, id string) (io.ReadCloser, error) {
	if uuid.Validate(id) != nil {
		return nil, fmt.Errorf("result %q: %w", id, ErrNotFound)
	}
	f, err := os.Open(d.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("result %s: its file is not in the directory: %w", id, ErrElsewhere)
	}
	if err != nil {
		return nil, fmt.Errorf("open result: %w", err)
	}
	return f, nil
}

// Remove implements Blobs.
func (d *Directory) Remove(_ context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		for _, path := range []string{d.path(id), d.path(id) + suffix} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove result: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// Old implements Blobs. Files that are no values are left alone.
func (d *Directory) Old(ctx context.Context, before time.Time) ([]string, error) {
	folders, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("list results: %w", err)
	}
	var ids []string
	for _, folder := range folders {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !folder.IsDir() || len(folder.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(filepath.Join(d.dir, folder.Name()))
		if err != nil {
			return nil, fmt.Errorf("list results: %w", err)
		}
		for _, f := range files {
			id := strings.TrimSuffix(f.Name(), suffix)
			info, err := f.Info()
			if err != nil || uuid.Validate(id) != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
				continue
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}
