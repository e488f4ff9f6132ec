package embedded

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFetchedArchiveIsVerified(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "archive")
	require.NoError(t, os.WriteFile(file, []byte("hello\n"), 0o600))
	const hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	require.NoError(t, verify(file, hello))
	require.NoError(t, os.WriteFile(file, []byte("hellp\n"), 0o600))
	require.ErrorContains(t, verify(file, hello), "the archive is not the one we know")
}

// writeArchive makes a .tar.xz with the xz program, or skips.
func writeArchive(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries {
		content := []byte("#!/bin/sh\n")
		if e.Typeflag != tar.TypeReg {
			content = nil
		}
		e.Size = int64(len(content))
		require.NoError(t, w.WriteHeader(&e))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	xz, err := exec.LookPath("xz")
	if err != nil {
		t.Skip("needs the xz program to make an archive")
	}
	cmd := exec.Command(xz, "-c")
	cmd.Stdin = &plain
	packed, err := cmd.Output()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "archive.txz")
	require.NoError(t, os.WriteFile(file, packed, 0o600))
	return file
}

func TestFetchedArchiveIsUnpackedForAllUsers(t *testing.T) {
	t.Parallel()
	file := writeArchive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o700},
		tar.Header{Typeflag: tar.TypeReg, Name: "./bin/postgres", Mode: 0o700},
		tar.Header{Typeflag: tar.TypeReg, Name: "lib/libpq.so.5.18", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "lib/libpq.so", Linkname: "libpq.so.5.18"})
	dir := filepath.Join(t.TempDir(), "unpacked")
	require.NoError(t, unpack(t.Context(), file, dir))
	info, err := os.Stat(filepath.Join(dir, "bin", "postgres"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o744), info.Mode().Perm())
	content, err := os.ReadFile(filepath.Join(dir, "lib", "libpq.so"))
	require.NoError(t, err)
	assert.Equal(t, "#!/bin/sh\n", string(content))
}

func TestFetchedArchiveCannotWriteElsewhere(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]tar.Header{
		"parent": {{Typeflag: tar.TypeReg, Name: "../escaped", Mode: 0o600}},
		"link": {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: ".."},
			{Typeflag: tar.TypeReg, Name: "out/escaped", Mode: 0o600}},
		"device": {{Typeflag: tar.TypeChar, Name: "escaped", Mode: 0o600}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			require.Error(t, unpack(t.Context(), writeArchive(t, entries...), filepath.Join(parent, "unpacked")))
			assert.NoFileExists(t, filepath.Join(parent, "escaped"))
		})
	}
}

// Fetching needs the network and 15 MB, so it runs where it is asked for.
func TestPostgresIsFetchedWhereItsVersionIsNotInstalled(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_NETWORK") == "" {
		t.Skip("set MILLRACE_TEST_NETWORK=1 to fetch PostgreSQL over the network")
	}
	base, err := os.MkdirTemp("", "millrace-fetch-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(base)) })
	require.NoError(t, os.Chmod(base, 0o755))

	var steps []string
	cfg := PostgresConfig{DataDir: filepath.Join(base, "pg"), FetchCache: filepath.Join(base, "cache"),
		FetchProgress: func(s FetchStep) { steps = append(steps, s.Name) }}
	lay := layout(cfg.DataDir)
	user, err := chooseUser(lay)
	require.NoError(t, err)
	fetcher := &Postgres{cfg: cfg, lay: lay, user: user, log: logger(nil)}
	bin, err := fetcher.fetchBinaries(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fetchMajor, bin.major)
	assert.Equal(t, []string{"download", "verify", "unpack"}, steps)
	left, err := os.ReadDir(cfg.FetchCache)
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing but the programs is left")

	cfg.BinDir = bin.dir
	pg, err := StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, pg.Stop(context.Background()))
	// Without BinDir the cluster decides which programs it needs; no second fetch.
	cfg.BinDir = ""
	pg, err = StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, fetchMajor, pg.bin.major)
	require.NoError(t, pg.Stop(context.Background()))
	assert.Len(t, steps, 3)
}

// A fetch whose process was killed cannot clean up; the next one does, without
// touching a fetch that is under way.
func TestAnAbandonedFetchIsRemoved(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	abandoned, running := filepath.Join(cache, "fetch-1"), filepath.Join(cache, "fetch-2")
	for _, dir := range []string{abandoned, running, filepath.Join(cache, "postgresql-18")} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "archive"), nil, 0o600))
	}
	lock, err := lockDir(running)
	require.NoError(t, err)
	defer func() { _ = lock.release() }()

	removeAbandoned(cache, time.Now())
	assert.DirExists(t, abandoned, "its owner may be about to lock it")
	removeAbandoned(cache, time.Now().Add(2*abandonedAfter))
	assert.NoDirExists(t, abandoned)
	assert.DirExists(t, running)
	assert.DirExists(t, filepath.Join(cache, "postgresql-18"))
}
