package kafkasource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/trigger/kafkasource"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/internal/trigger"
)

// childEnv makes this test binary a process that runs one member of a trigger, whose
// Create asks the parent.
const childEnv = "MILLRACE_TEST_TRIGGER_MEMBER"

// order is what a child is to run.
type order struct {
	Addrs   []string
	Socket  string
	Trigger trigger.Stored
}

// asked is what the child has created of one message.
type asked struct {
	Place ingest.Place
	Body  []byte
}

// child runs a member until it is killed.
func child(setting string) int {
	var o order
	if err := json.Unmarshal([]byte(setting), &o); err != nil {
		return 2
	}
	t, faults := trigger.Compile(o.Trigger, trigger.Defaults{Brokers: o.Addrs})
	if trigger.Refused(faults) != nil {
		return 2
	}
	source := kafkasource.New(kafkasource.Config{
		Installation: kafka.Config{Brokers: o.Addrs}, Creator: remote(o.Socket), Secrets: noSecrets{},
		BackoffInitial: 20 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
	})
	if err := source.Run(context.Background(), t, 0, func(trigger.MemberReport) {}); err != nil {
		return 1
	}
	return 0
}

// remote is a Creator whose database is a socket of the parent.
type remote string

func (r remote) Create(ctx context.Context, _ *trigger.Compiled, messages []ingest.Message) ([]ingest.Outcome, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", string(r))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	batch := make([]asked, len(messages))
	for i, m := range messages {
		batch[i] = asked{*m.Place, m.Body}
	}
	if err := json.NewEncoder(conn).Encode(batch); err != nil {
		return nil, err
	}
	var done int
	if err := json.NewDecoder(conn).Decode(&done); err != nil {
		return nil, err
	}
	return make([]ingest.Outcome, done), nil
}

// moment is when a process is killed, with a batch in hand.
type moment string

const (
	beforeStored    moment = "nothing was stored"
	beforeAnswered  moment = "stored, and the process does not know"
	beforeCommitted moment = "stored and answered, and the offset may not have moved"
	afterCommitted  moment = "the offset has moved"
)

func TestKilledOnEmbeddedBroker(t *testing.T) {
	t.Parallel()
	killed(t, testenv.Broker(t))
}

func TestKilledOnRealKafka(t *testing.T) { killed(t, realkafka.Shared(t)) }

// A process that is killed with messages in hand, at whatever moment, leaves each of them
// made once, in the order of the log, by the one that takes over. That one need not wait for
// the session of the dead one to end.
func killed(t *testing.T, addrs []string) {
	b := newBench(t, addrs)
	b.create(1)
	dir, err := os.MkdirTemp("", "mr") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := order{Addrs: addrs, Socket: filepath.Join(dir, "s"), Trigger: b.compile(func(k *trigger.Kafka) { k.Batch = 4 }).Stored}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", o.Socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	var want []string
	began := time.Now()
	for round, when := range []moment{beforeStored, beforeAnswered, beforeCommitted, afterCommitted, beforeAnswered, beforeStored} {
		fresh := values(fmt.Sprintf("%d-", round), 10)
		want = append(want, fresh...)
		b.publish(0, fresh...)
		b.killOne(o, listener, when, len(want)-5)
	}
	last := b.startChild(o)
	for len(b.made.of(b.topic, 0)) < len(want) {
		b.serve(accept(t, listener), nil)
	}
	require.Equal(t, want, b.made.of(b.topic, 0))
	// What was acked last is committed, or comes again and is known.
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.serve(conn, nil)
		}
	}()
	b.committedIs(0, int64(len(want)))
	kill(t, last)
	require.NoError(t, listener.Close())
	<-answering
	require.Equal(t, want, b.made.of(b.topic, 0))
	t.Logf("six processes killed and replaced in %s, with sessions of 30s", time.Since(began).Round(time.Millisecond))
}

// killOne starts a process and kills it at a moment of the first batch from that offset on.
func (b *bench) killOne(o order, listener net.Listener, when moment, from int) {
	b.Helper()
	process := b.startChild(o)
	for dead := false; !dead; {
		b.serve(accept(b.T, listener), func(batch []asked, at moment) bool {
			last := batch[len(batch)-1].Place.Offset
			if dead || at != when || last < int64(from) {
				return dead
			}
			if when == afterCommitted {
				b.committedIs(0, last+1)
			}
			kill(b.T, process)
			dead = true
			return true
		})
	}
}

// serve answers one Create. It asks stop at every moment, which says whether the process
// is dead.
func (b *bench) serve(conn net.Conn, stop func([]asked, moment) bool) {
	defer conn.Close()
	dead := func(batch []asked, at moment) bool { return stop != nil && stop(batch, at) }
	var batch []asked
	if json.NewDecoder(conn).Decode(&batch) != nil || dead(batch, beforeStored) {
		return
	}
	messages := make([]ingest.Message, len(batch))
	for i, a := range batch {
		messages[i] = ingest.Message{Place: &a.Place, Body: a.Body}
	}
	outcomes, err := b.made.Create(context.Background(), nil, messages)
	if err != nil || dead(batch, beforeAnswered) {
		return
	}
	_ = json.NewEncoder(conn).Encode(len(outcomes))
	if !dead(batch, beforeCommitted) {
		dead(batch, afterCommitted)
	}
}

func accept(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	require.NoError(t, listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience)))
	conn, err := listener.Accept()
	require.NoError(t, err, "nobody comes with messages")
	return conn
}

func (b *bench) startChild(o order) *exec.Cmd {
	b.Helper()
	setting, err := json.Marshal(o)
	require.NoError(b, err)
	self, err := os.Executable()
	require.NoError(b, err)
	process := exec.CommandContext(context.Background(), self)
	process.Env = append(os.Environ(), childEnv+"="+string(setting))
	process.Stderr = os.Stderr
	require.NoError(b, process.Start())
	b.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return process
}

// kill ends a process as the kernel would, and waits until it is gone.
func kill(t *testing.T, process *exec.Cmd) {
	t.Helper()
	require.NoError(t, process.Process.Kill())
	_ = process.Wait()
}
