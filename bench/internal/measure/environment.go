package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Environment is what figures were taken on: without it they mean nothing.
type Environment struct {
	Cores    int    `json:"cores"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Postgres string `json:"postgres,omitempty"`
	Kafka    string `json:"kafka,omitempty"`
	// Fsync is the median time of writing one page and making it durable, where the
	// database lies.
	Fsync time.Duration `json:"fsync_ns,omitempty"`
	// LoadBefore and LoadAfter are /proc/loadavg: 1, 5 and 15 minutes.
	LoadBefore string `json:"load_before"`
	LoadAfter  string `json:"load_after"`
}

// Here describes this machine.
func Here() Environment {
	return Environment{
		Cores: runtime.NumCPU(), Go: runtime.Version(), LoadBefore: Load(),
		Kernel: strings.TrimSpace(readFile("/proc/sys/kernel/osrelease")),
	}
}

// Load returns the averages of /proc/loadavg.
func Load() string {
	fields := strings.Fields(readFile("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

func readFile(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// String is the environment in lines.
func (e Environment) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine   %d cores, Linux %s, %s\n", e.Cores, e.Kernel, e.Go)
	var servers []string
	if e.Kafka != "" {
		servers = append(servers, "Kafka "+e.Kafka)
	}
	if e.Postgres != "" {
		servers = append(servers, "PostgreSQL "+e.Postgres)
	}
	if e.Fsync > 0 {
		servers = append(servers, fmt.Sprintf("one 8 KiB write and fdatasync takes %s", e.Fsync.Round(time.Microsecond)))
	}
	fmt.Fprintf(&b, "servers   %s\n", strings.Join(servers, "; "))
	fmt.Fprintf(&b, "load      %s before, %s after\n", e.LoadBefore, e.LoadAfter)
	return b.String()
}

// Fsync measures the median time of writing a page over an old one and making
// it durable, as PostgreSQL does with its log.
func Fsync(dir string) (time.Duration, error) {
	const pages, writes, page = 64, 200, 8 << 10
	f, err := os.CreateTemp(dir, "fsync-*")
	if err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(filepath.Clean(f.Name())) }()
	if _, err := f.Write(make([]byte, pages*page)); err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	buffer := make([]byte, page)
	took := make([]time.Duration, writes)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(buffer, int64(i%pages)*page); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
