package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/testenv/program"
)

// Member is a process of a fleet.
type Member struct {
	Name    string
	Process *program.Process
}

// Stop asks the process to stop and waits until it has.
func (m *Member) Stop(ctx context.Context) error {
	if err := m.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-m.Process.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CPU is the processor time of the process.
func (m *Member) CPU() time.Duration { return measure.CPU(m.Process.PID()) }

// Size is how large a process is.
type Size struct {
	Resident   float64 `json:"resident_mib"`
	Heap       float64 `json:"heap_mib"`
	Stacks     float64 `json:"stacks_mib"`
	Goroutines float64 `json:"goroutines"`
}

// Size measures the process after a collection of its garbage.
func (m *Member) Size(ctx context.Context) (Size, error) {
	for range 2 { // what has finalizers goes with the second
		if err := m.collect(ctx); err != nil {
			return Size{}, err
		}
	}
	found, err := m.Metrics(ctx)
	const mib = 1 << 20
	return Size{
		Resident: found["process_resident_memory_bytes"] / mib, Heap: found["go_memstats_heap_alloc_bytes"] / mib,
		Stacks: found["go_memstats_stack_inuse_bytes"] / mib, Goroutines: found["go_goroutines"],
	}, err
}

// Metrics are the metrics of a process, by name with labels.
type Metrics map[string]float64

// Sum adds up all series of a metric.
func (m Metrics) Sum(name string) float64 {
	total := 0.0
	for series, value := range m {
		if series == name || strings.HasPrefix(series, name+"{") {
			total += value
		}
	}
	return total
}

// Metrics reads the metrics of the process.
func (m *Member) Metrics(ctx context.Context) (Metrics, error) {
	body, err := m.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	found := Metrics{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		cut := strings.LastIndexByte(lines.Text(), ' ')
		if cut < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if value, err := strconv.ParseFloat(lines.Text()[cut+1:], 64); err == nil {
			found[lines.Text()[:cut]] = value
		}
	}
	return found, lines.Err()
}

func (m *Member) get(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Process.Address("admin")+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s of %s: %s", path, m.Name, answer.Status)
	}
	return answer.Body, nil
}

// collect has the process collect garbage.
func (m *Member) collect(ctx context.Context) error {
	body, err := m.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	_, err = io.Copy(io.Discard, body)
	return err
}
