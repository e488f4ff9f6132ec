package embedded

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/xi2/xz"
)

// The version of PostgreSQL that is fetched where none is installed.
const (
	fetchVersion = "18.6.0"
	fetchMajor   = 18
)

// FetchStep is one step of bringing server programs over the network.
type FetchStep struct {
	// Name is "download", "verify" or "unpack".
	Name string
	// Version of PostgreSQL.
	Version string
	// Bytes is the size of the archive, about 15 MB on Linux.
	Bytes int64
}

// archive is a server archive that we know: what its bytes must hash to.
type archive struct {
	sha256 string
	bytes  int64
}

// archives holds the archives by what the fetching module calls the platform.
// To take a new version, change fetchVersion and what the hashes of its archives
// are here; the macOS archive serves both processors.
var archives = map[string]archive{
	"linux-amd64":        {"63999c2914366d62c68e51794e597588c336e75ed2958d53c558e8deca5e13fc", 15114736},
	"linux-arm64v8":      {"2eb24d67326da41a81064d116b0bce412dff543c835d6fcc1c099e4abcf18836", 14137620},
	"linux-amd64-alpine": {"d9bba3fa653ad08f5e92303587451ed6d1ca4883afb377773630ae853d40121f", 14851612},
	"darwin-amd64":       {"f4db5df0b13e3e72149c0547ccd1eee177cfe67accb8c296e8d0e46ef3601f01", 71165492},
	"darwin-arm64v8":     {"f4db5df0b13e3e72149c0547ccd1eee177cfe67accb8c296e8d0e46ef3601f01", 71165492},
}

// fetchPlatform names this machine as the fetching module does.
func fetchPlatform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		arch += "-alpine"
	}
	return runtime.GOOS + "-" + arch
}

// fetchBinaries returns the fetched server programs, fetching them when they are
// not in the cache. They appear in the cache complete, by a rename.
func (pg *Postgres) fetchBinaries(ctx context.Context) (binaries, error) {
	platform := fetchPlatform()
	known, ok := archives[platform]
	if !ok {
		return binaries{}, fmt.Errorf("no PostgreSQL was found, and none can be fetched for %s: install PostgreSQL %d to %d",
			platform, PostgresMajorMin, PostgresMajorMax)
	}
	cache, err := pg.fetchCache()
	if err != nil {
		return binaries{}, err
	}
	dir := filepath.Join(cache, "postgresql-"+fetchVersion+"-"+platform)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := pg.fetchInto(ctx, cache, dir, platform, known); err != nil {
			return binaries{}, fmt.Errorf("fetch PostgreSQL %s: %w", fetchVersion, err)
		}
	}
	if err := pg.user.canEnter(dir, ""); err != nil {
		return binaries{}, fmt.Errorf("the cache of fetched programs: %w", err)
	}
	return probe(ctx, pg.user, filepath.Join(dir, "bin"))
}

func (pg *Postgres) fetchCache() (string, error) {
	switch {
	case pg.cfg.FetchCache != "":
		return filepath.Abs(pg.cfg.FetchCache)
	case pg.user.drop:
		return "/var/cache/millrace", nil // root's own cache is closed to the user who runs the server
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(cache, "millrace"), nil
}

// fetchInto downloads, verifies and unpacks an archive to dir. Several processes
// may do so at once: each works in a directory of its own, one rename wins.
func (pg *Postgres) fetchInto(ctx context.Context, cache, dir, platform string, known archive) error {
	if err := makeOpenDir(cache); err != nil {
		return err
	}
	removeAbandoned(cache, time.Now())
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	lock, err := lockDir(work) // says to others that somebody is at it
	if err != nil {
		return err
	}
	defer func() { _ = lock.release() }()
	step := func(name string) {
		pg.log.InfoContext(ctx, "fetching postgres", "step", name, "version", fetchVersion, "bytes", known.bytes)
		if pg.cfg.FetchProgress != nil {
			pg.cfg.FetchProgress(FetchStep{Name: name, Version: fetchVersion, Bytes: known.bytes})
		}
	}
	step("download")
	file, err := download(ctx, work, platform)
	if err != nil {
		return err
	}
	step("verify")
	if err := verify(file, known.sha256); err != nil {
		return err
	}
	step("unpack")
	unpacked := filepath.Join(work, "unpacked")
	if err := unpack(ctx, file, unpacked); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	err = os.Rename(unpacked, dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster, with the same bytes
	}
	return err
}

// abandonedAfter is how old the directory of a fetch must be before it can be
// taken for abandoned: its owner locks it right after making it.
const abandonedAfter = time.Minute

// removeAbandoned removes what fetches left behind whose process was killed.
func removeAbandoned(cache string, now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(cache, "fetch-*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || now.Sub(info.ModTime()) < abandonedAfter {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.release()
		}
	}
}

// download lets the fetching module bring the archive to work and nothing more.
// The module knows the source but has no call that only fetches: its Start would
// go on to unpack and run what it got. A dangling link in place of the directory
// to unpack to makes it stop there, before it touches unverified bytes.
//
// The module cannot be cancelled: when ctx ends first, the download goes on in
// the background to its end and finds its directory gone.
func download(ctx context.Context, work, platform string) (string, error) {
	blocked := filepath.Join(work, "blocked")
	if err := os.Symlink(filepath.Join(work, "nowhere"), blocked); err != nil {
		return "", err
	}
	module := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchVersion).Port(0).Logger(io.Discard).
		CachePath(work).RuntimePath(filepath.Join(work, "runtime")).
		DataPath(filepath.Join(work, "data")).BinariesPath(filepath.Join(blocked, "bin")))
	stopped := make(chan error, 1)
	go func() {
		err := module.Start()
		http.DefaultClient.CloseIdleConnections() // which the module used and nobody needs now
		stopped <- err
	}()
	var stop error
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case stop = <-stopped:
	}
	if stop == nil {
		return "", errors.Join(errors.New("the fetching module started a server, which it must not"), module.Stop())
	}
	file := filepath.Join(work, "embedded-postgres-binaries-"+platform+"-"+fetchVersion+".txz")
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("download (install PostgreSQL to do without): %w", stop)
	}
	return file, nil
}

// verify compares the hash of a file with the pinned one.
func verify(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("verify: the archive is not the one we know: SHA-256 is %s, not %s; it was not used", got, want)
	}
	return nil
}

// unpack extracts a .tar.xz to dir. The root handle keeps every entry inside.
func unpack(ctx context.Context, path, dir string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := xz.NewReader(file, 0)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for entries := tar.NewReader(plain); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackEntry(root, entry, entries)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

func unpackEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := filepath.Clean(entry.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(entry.Linkname, name)
	case tar.TypeReg:
		// Readable by all: the server may run as another user.
		out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(entry.Mode)&0o755|0o444)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	}
	return fmt.Errorf("entry %s has the unexpected type %q", entry.Name, entry.Typeflag)
}
