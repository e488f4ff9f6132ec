package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The major versions of PostgreSQL that Millrace runs on.
const (
	PostgresMajorMin = 15
	PostgresMajorMax = 18
)

// binaries is a set of server programs of one version.
type binaries struct {
	dir     string
	version string // such as 15.18
	major   int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// installDirs are where distributions put the server programs of a major
// version, which most of them keep off PATH.
var installDirs = []string{
	"/usr/lib/postgresql/%d/bin",          // Debian, Ubuntu
	"/usr/pgsql-%d/bin",                   // Red Hat family
	"/usr/libexec/postgresql%d",           // Alpine
	"/opt/homebrew/opt/postgresql@%d/bin", // macOS
	"/usr/local/opt/postgresql@%d/bin",
}

// findBinaries returns the server programs to use. A cluster can only be opened
// by programs of the major version that made it, so for an existing one those
// are searched; a new one gets the first that are supported.
func (pg *Postgres) findBinaries(ctx context.Context) (binaries, error) {
	want, err := clusterMajor(pg.lay)
	if err != nil {
		return binaries{}, err
	}
	if want != 0 && (want < PostgresMajorMin || want > PostgresMajorMax) {
		return binaries{}, fmt.Errorf("%s was made by PostgreSQL %d, and Millrace supports %d to %d: %s",
			pg.lay.cluster(), want, PostgresMajorMin, PostgresMajorMax, pg.otherMajorAdvice())
	}
	var seen []string
	for _, dir := range pg.binaryDirs() {
		bin, err := probe(ctx, pg.user, dir)
		switch {
		case ctx.Err() != nil: // says nothing about the programs, and is no reason to fetch others
			return binaries{}, ctx.Err()
		case err != nil && pg.cfg.BinDir != "":
			return binaries{}, fmt.Errorf("server programs in %s: %w", dir, err)
		case err != nil:
			pg.log.DebugContext(ctx, "postgres programs not usable", "dir", dir, "error", err)
		case bin.major < PostgresMajorMin || bin.major > PostgresMajorMax || (want != 0 && bin.major != want):
			seen = append(seen, fmt.Sprintf("%s in %s", bin.version, dir))
		default:
			return bin, nil
		}
	}
	if pg.cfg.BinDir == "" && !pg.cfg.NoFetch && (want == 0 || want == fetchMajor) {
		return pg.fetchBinaries(ctx)
	}
	return binaries{}, pg.noBinaries(want, seen)
}

func (pg *Postgres) noBinaries(want int, seen []string) error {
	found := "none were found"
	if len(seen) > 0 {
		found = "only " + strings.Join(seen, ", ") + " was found"
	}
	if want != 0 {
		return fmt.Errorf("%s was made by PostgreSQL %d, which needs server programs of that version, and %s: install PostgreSQL %d, or %s",
			pg.lay.cluster(), want, found, want, pg.otherMajorAdvice())
	}
	return fmt.Errorf("server programs of PostgreSQL %d to %d are needed, and %s: install PostgreSQL, or give Millrace a connection string of a server",
		PostgresMajorMin, PostgresMajorMax, found)
}

func (pg *Postgres) otherMajorAdvice() string {
	with := ""
	if pg.cfg.DataDirSetting != "" {
		with = " with " + pg.cfg.DataDirSetting
	}
	return "choose another data directory" + with + " and carry the data over with pg_dump; nothing has been changed"
}

// clusterMajor returns the major version of the cluster, 0 when there is none.
func clusterMajor(lay layout) (int, error) {
	text, err := os.ReadFile(filepath.Join(lay.cluster(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(lay.cluster()); err == nil {
			return 0, fmt.Errorf("%s is not a PostgreSQL cluster: it has no PG_VERSION; move it away", lay.cluster())
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the cluster: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the cluster: PG_VERSION in %s says %q", lay.cluster(), strings.TrimSpace(string(text)))
	}
	return major, nil
}

// binaryDirs lists where server programs may be, in the order of preference.
func (pg *Postgres) binaryDirs() []string {
	if pg.cfg.BinDir != "" {
		return []string{pg.cfg.BinDir}
	}
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link on PATH leads to the directory that has initdb and the libraries.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for major := PostgresMajorMax; major >= PostgresMajorMin; major-- {
		for _, pattern := range installDirs {
			dirs = append(dirs, fmt.Sprintf(pattern, major))
		}
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`PostgreSQL\) ((\d+)(?:\.\d+)?\S*)`)

// probe tells what version the programs in dir are. It runs them as the user who
// will, so that programs which that user cannot reach are not chosen.
func probe(ctx context.Context, user runUser, dir string) (binaries, error) {
	bin := binaries{dir: dir}
	for _, program := range []string{"postgres", "initdb"} {
		if _, err := os.Stat(bin.path(program)); err != nil {
			return binaries{}, err
		}
	}
	cmd := user.command(bin.path("postgres"), "--version")
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return binaries{}, fmt.Errorf("ask for the version as %s: %w", user, err)
	}
	match := versionPattern.FindStringSubmatch(string(out))
	if match == nil {
		return binaries{}, fmt.Errorf("ask for the version: unexpected answer %q", out)
	}
	bin.version = match[1]
	bin.major, err = strconv.Atoi(match[2])
	return bin, errors.Join(err, ctx.Err())
}
