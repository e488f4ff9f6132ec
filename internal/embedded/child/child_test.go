package child_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/embedded/child"
)

// parentEnv makes the test binary act as the parent that gets killed.
const parentEnv = "MILLRACE_TEST_CHILD_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		actAsParent()
		return
	}
	goleak.VerifyTestMain(m)
}

// actAsParent starts a child, prints its id and waits to be killed.
func actAsParent() {
	p, err := child.Start(exec.Command("sleep", "600"), syscall.SIGTERM)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done()
}

func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.True(t, alive(pid))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	assert.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 10*time.Millisecond)
}

// Threads end when goroutines locked to them return. A child whose death signal
// hung on such a thread would be signalled while its parent lives.
func TestChildSurvivesTheEndOfOtherThreads(t *testing.T) {
	t.Parallel()
	p, err := child.Start(exec.Command("sleep", "600"), syscall.SIGKILL)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Kill()) }()

	for range 20 {
		var wg sync.WaitGroup
		for range 16 {
			wg.Add(1)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				wg.Done()
			}()
		}
		wg.Wait()
	}
	// A second child that is started and reaped afterwards shows that signals of
	// the ended threads would have been delivered by now.
	other, err := child.Start(exec.Command("true"), syscall.SIGKILL)
	require.NoError(t, err)
	<-other.Done()
	require.NoError(t, other.Err())
	select {
	case <-p.Done():
		t.Fatalf("the child ended: %v", p.Err())
	default:
	}
	assert.True(t, alive(p.PID()))
}

func TestStopEscalates(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 600 & wait $!; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	last, err := p.Stop(context.Background(), child.Step{Signal: syscall.SIGTERM, Wait: 50 * time.Millisecond})
	require.NoError(t, err)
	assert.Equal(t, syscall.SIGKILL, last)
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)

	last, err = p.Stop(context.Background(), child.Step{Signal: syscall.SIGTERM, Wait: time.Minute})
	require.NoError(t, err, "stopping twice is fine")
	assert.Zero(t, last)
	require.NoError(t, p.Signal(syscall.SIGTERM), "so is signalling one that has ended")
}

func TestStopIsContentWithTheFirstSignalThatWorks(t *testing.T) {
	t.Parallel()
	p, err := child.Start(exec.Command("sleep", "600"), syscall.SIGKILL)
	require.NoError(t, err)
	last, err := p.Stop(context.Background(), child.Step{Signal: syscall.SIGTERM, Wait: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, syscall.SIGTERM, last)
}

func TestStartNamesWhatItCouldNotStart(t *testing.T) {
	t.Parallel()
	_, err := child.Start(exec.Command("/does/not/exist"), syscall.SIGKILL)
	require.ErrorContains(t, err, "start /does/not/exist")
	require.ErrorIs(t, err, os.ErrNotExist)
}
