package world

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/clock"
	"github.com/millrace/millrace/internal/testenv/program"
)

// workerSlots is how many slots each worker has: few enough that the requests have to
// wait for each other.
const workerSlots = 4

// Slots is how many slots all workers have together.
func (w *World) Slots() int64 { return int64(len(w.Part(Worker)) * workerSlots) }

// settings of every process: times short enough that a fault of some seconds
// matters, and pools small enough for many processes.
func settings() []string {
	return []string{
		"kafka.session_timeout=11s", "kafka.heartbeat_interval=500ms", "kafka.rebalance_timeout=15s", "kafka.dial_timeout=3s",
		"postgres.max_conns=6", "worker.lease=6s", "worker.heartbeat=1s", "worker.shutdown_grace=3s",
		fmt.Sprintf("worker.slots=%d", workerSlots), "coordinator.max_deliveries=1000", "coordinator.start_limit=10s", "topics.execution_events.partitions=6",
	}
}

// recruit prepares the members: two of every part, one on each link.
func (w *World) recruit() error {
	old := w.Members
	w.Members = nil
	parts := []struct{ part, roles string }{
		{API, "api"}, {Relay, "relay"}, {Coordinator, "coordinator,maintenance"}, {Worker, "worker"}, {Projections, "projections"},
	}
	for _, p := range parts {
		for i, link := range []string{LinkA, LinkB} {
			m, err := w.recruitServe(fmt.Sprintf("%s-%d", p.part, i+1), p.part, p.roles, link)
			if err != nil {
				return err
			}
			w.Members = append(w.Members, m)
		}
	}
	for i := range 2*w.Consumers - 1 {
		link := []string{LinkA, LinkB}[i%2]
		m, err := w.recruitConsumer(fmt.Sprintf("consumer-%d", i+1), link, i < w.Consumers)
		if err != nil {
			return err
		}
		w.Members = append(w.Members, m)
	}
	// After a replacement of the database: the logs of before belong to the run too.
	for i, m := range old {
		w.Members[i].starts, w.Members[i].logFiles = m.starts, m.LogFiles()
	}
	return nil
}

func (w *World) recruitServe(name, part, roles, link string) (*Member, error) {
	env, err := w.environ(link)
	if err != nil {
		return nil, err
	}
	listen := "127.0.0.1:0"
	if part == API {
		// At an address of its own over all restarts, behind a proxy.
		if listen, err = FreeAddress(); err != nil {
			return nil, err
		}
		if _, err := w.Links.connect(end{name, API, 0}, listen); err != nil {
			return nil, err
		}
	}
	args := []string{"serve", "--roles", roles, "--api-listen", listen, "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(w.Dir, "data", name), "--set", "worker.id=" + name}
	for _, s := range settings() {
		args = append(args, "--set", s)
	}
	binary := w.Millrace
	if w.WrongClock != "" {
		binary, env = w.WrongClock, append(env, clock.Variable+"="+wrongClock(link))
	}
	return &Member{
		Name: name, Part: part, Link: link, Fixed: true, world: w,
		launch: program.Launch{Binary: binary, Args: args, Env: env, Home: w.Dir},
	}, nil
}

// wrongClock is how wrong the clocks of the processes on a link are.
func wrongClock(link string) string {
	if link == LinkA {
		return clock.Wrong(5*time.Minute, 0)
	}
	return clock.Wrong(-5*time.Minute, 12*time.Second)
}

func (w *World) recruitConsumer(name, link string, fixed bool) (*Member, error) {
	env, err := w.environ(link)
	if err != nil {
		return nil, err
	}
	env = append(env,
		"MILLRACE_DATA_DIR="+filepath.Join(w.Dir, "data", name), "MILLRACE_KAFKA_SESSION_TIMEOUT=11s",
		"MILLRACE_KAFKA_HEARTBEAT_INTERVAL=500ms", "MILLRACE_KAFKA_REBALANCE_TIMEOUT=15s", "MILLRACE_KAFKA_DIAL_TIMEOUT=3s",
		"MILLRACE_POSTGRES_MAX_CONNS=8", "MILLRACE_WORKER_ID="+name,
		"CHAOS_NAME="+name, "CHAOS_NOTES="+w.NotesFile(),
	)
	return &Member{
		Name: name, Part: Consumer, Link: link, Fixed: fixed, world: w,
		launch: program.Launch{Binary: w.Chaos, Args: []string{"consumer"}, Env: append(env, w.Options.Environ...), Home: w.Dir},
	}, nil
}

// NotesFile is the log of effects that consumers keep outside of the database.
func (w *World) NotesFile() string { return filepath.Join(w.Dir, "effects.jsonl") }

// APIs are the addresses of the API processes, through their proxies.
func (w *World) APIs() []string {
	var all []string
	for _, m := range w.Part(API) {
		all = append(all, "http://"+w.Links.address(end{m.Name, API, 0}))
	}
	return all
}
