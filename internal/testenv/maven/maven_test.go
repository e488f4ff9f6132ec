package maven

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	waitLimit = 30 * time.Second
	pollEvery = 5 * time.Millisecond
)

// fake puts a program in the place of Maven, for the rest of the test, and gives the
// test a cache of its own. The file it returns has a line for each run.
func fake(t *testing.T, script string) (counted string) {
	t.Helper()
	dir := t.TempDir()
	counted = filepath.Join(dir, "counted")
	script = "#!/bin/sh\nfor a in \"$@\"; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; done\necho run >> " + counted + "\n" + script
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mvn"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return counted
}

func TestASetIsFetchedOnce(t *testing.T) {
	counted := fake(t, "mkdir -p \"$out\" && echo jar > \"$out/a.jar\"\n")
	set := Set{Name: "some-set", What: "something", POM: []byte("<project/>")}
	var progress bytes.Buffer
	first, err := set.Ensure(t.Context(), &progress)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(first, "a.jar"))
	assert.Equal(t, "fetching something with Maven, once\n", progress.String())

	var all sync.WaitGroup
	other := Set{Name: "other-set", POM: []byte("<project/>")}
	for range 4 {
		all.Go(func() {
			again, err := set.Ensure(t.Context(), nil)
			assert.NoError(t, err)
			assert.Equal(t, first, again)
			dir, err := other.Ensure(t.Context(), nil)
			assert.NoError(t, err)
			assert.FileExists(t, filepath.Join(dir, "a.jar"))
		})
	}
	all.Wait()
	runs, err := os.ReadFile(counted)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(runs), "run"), "once for each set")
}

func TestAFailureLeavesNothingBehind(t *testing.T) {
	fake(t, "mkdir -p \"$out\" && echo half > \"$out/a.jar\" && echo no such artifact && exit 1\n")
	set := Set{Name: "some-set", POM: []byte("<project/>")}
	for range 2 {
		_, err := set.Ensure(t.Context(), nil)
		require.ErrorContains(t, err, "no such artifact")
	}
}

func TestWithoutMavenItSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := Set{Name: "some-set"}.Ensure(t.Context(), nil)
	require.ErrorContains(t, err, "apt-get install maven")
}

// A run that takes too long is given up, and so is the wait for another's.
func TestItEndsWithItsContext(t *testing.T) {
	counted := fake(t, "exec sleep 600\n")
	set := Set{Name: "some-set"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := set.Ensure(ctx, nil)
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { _, err := os.Stat(counted); return err == nil }, waitLimit, pollEvery)
	cancel()
	for range 2 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}
