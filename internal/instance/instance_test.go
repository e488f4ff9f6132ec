package instance_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
)

// holdEnv makes the test binary claim a directory and wait for the end of its
// input.
const holdEnv = "MILLRACE_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		if _, err := instance.Take(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold has another process claim the directory.
func hold(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _, _ = in.Close(), cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)
	return cmd
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "on the way")
	const takers = 16
	var claims atomic.Int64
	var wg sync.WaitGroup
	won := make([]*instance.Claim, takers)
	for i := range takers {
		wg.Go(func() {
			claim, err := instance.Take(dir)
			if err == nil {
				claims.Add(1)
				won[i] = claim
				return
			}
			var used *instance.InUseError
			assert.ErrorAs(t, err, &used)
			assert.Equal(t, os.Getpid(), used.PID)
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, claims.Load())
	for _, claim := range won {
		if claim != nil {
			require.NoError(t, claim.Release())
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// However often the directory changes hands, nobody holds it together with another.
func TestTakeAndReleaseRace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var holding atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				claim, err := instance.Take(dir)
				if err != nil {
					continue
				}
				assert.EqualValues(t, 1, holding.Add(1))
				holding.Add(-1)
				assert.NoError(t, claim.Release())
			}
		})
	}
	wg.Wait()
}

func TestFindAndSignalTheHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, found, err := instance.Find(dir)
	require.NoError(t, err)
	assert.False(t, found)

	other := hold(t, dir)
	holder, found, err := instance.Find(dir)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, other.Process.Pid, holder.PID)
	assert.False(t, holder.Since.IsZero())
	_, err = instance.Take(dir)
	require.ErrorContains(t, err, "process "+strconv.Itoa(holder.PID))

	require.NoError(t, holder.Signal(syscall.SIGKILL))
	_ = other.Wait()
	_, found, err = instance.Find(dir)
	require.NoError(t, err)
	assert.False(t, found, "the file that is left behind says nothing")
	require.ErrorIs(t, holder.Signal(syscall.SIGTERM), os.ErrProcessDone)
	claim, err := instance.Take(dir)
	require.NoError(t, err)
	require.NoError(t, claim.Release())
}

// A process that has the id of the holder by now is not taken for it.
func TestAnIDThatIsUsedAgainIsNotSignalled(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	dir := t.TempDir()
	hold(t, dir)
	innocent := exec.Command("sleep", "600")
	require.NoError(t, innocent.Start())
	t.Cleanup(func() { _, _ = innocent.Process.Kill(), innocent.Wait() })
	note := fmt.Sprintf("%d\n2026-01-01T00:00:00Z\n1\n", innocent.Process.Pid)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "millrace.pid"), []byte(note), 0o600))
	_, found, err := instance.Find(dir)
	assert.False(t, found)
	assert.ErrorContains(t, err, "cannot be seen from here")
}

func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	}
}

func names(entries []instance.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name)
	}
	return all
}

func TestOnlyWhatIsOursIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours := []string{".token-123", "api.url", "api.url.99", "kafka", "millrace.pid", "postgres", "token", "work"}
	write(t, dir, "kafka/lock", "kafka/log/a", "postgres/lock", "work/x/y", "token", ".token-123", "api.url", "api.url.99", "millrace.pid")
	theirs := []string{"api.url.old", "millrace.yaml", "notes", "token.bak", ".token-"}
	write(t, dir, "api.url.old", "millrace.yaml", "notes/a", "token.bak", ".token-")
	outside := t.TempDir()
	write(t, outside, "precious")
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "work", "link")))

	entries, err := instance.Entries(dir)
	require.NoError(t, err)
	assert.Equal(t, ours, names(entries))
	assert.EqualValues(t, 10, entries[3].Bytes)
	require.NoError(t, instance.Remove(dir, entries))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	var still []string
	for _, e := range left {
		still = append(still, e.Name())
	}
	assert.ElementsMatch(t, theirs, still)
	assert.FileExists(t, filepath.Join(outside, "precious"))
}

// Somebody's own folders that happen to have our names stay.
func TestAFolderThatOnlyHasOurNameStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "work/thesis.txt", "kafka/the-trial.txt", "postgres/dump.sql")
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "api.url")))
	entries, err := instance.Entries(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
	entries, err = instance.Entries(filepath.Join(dir, "nowhere"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestRemoveRefusesWhileSomebodyIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "token")
	other := hold(t, dir)
	entries, err := instance.Entries(dir)
	require.NoError(t, err)
	var used *instance.InUseError
	require.ErrorAs(t, instance.Remove(dir, entries), &used)
	require.NoError(t, other.Process.Kill())
	_ = other.Wait()

	broker, err := embedded.StartBroker(t.Context(), embedded.BrokerConfig{
		DataDir: filepath.Join(dir, instance.BrokerDir), Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	entries, err = instance.Entries(dir)
	require.NoError(t, err)
	require.ErrorIs(t, instance.Remove(dir, entries), embedded.ErrInUse)
	assert.FileExists(t, configs.TokenFile(dir))
	require.NoError(t, broker.Close())
	require.NoError(t, instance.Remove(dir, entries))
	assert.NoFileExists(t, configs.TokenFile(dir))
}
