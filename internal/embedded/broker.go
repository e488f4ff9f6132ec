package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// BrokerListenDefault is where the embedded broker listens unless it is told
// otherwise.
const BrokerListenDefault = "127.0.0.1:9092"

// ClusterID is the id of the embedded broker's cluster, by which it is known.
const ClusterID = "millrace-embedded"

// BrokerConfig configures StartBroker. The zero value is a broker in memory on
// BrokerListenDefault.
type BrokerConfig struct {
	// DataDir is where topics, records and offsets are kept; it is created with
	// its parents. Empty keeps everything in memory, for tests.
	DataDir string
	// Listen is the TCP address, host:port; port 0 takes a free one. Defaults to
	// BrokerListenDefault.
	Listen string
	// Advertise is the host:port that clients are told to connect to. Defaults to
	// the address that the broker listens on, which will not do for 0.0.0.0.
	Advertise string
	// ListenSetting is the name of the setting that changes Listen, for the error
	// about a port that is taken. Empty leaves the hint out.
	ListenSetting string
	// Sync makes the broker fsync every batch before it acknowledges it, so that
	// acknowledged records outlive a power loss too. Off by default, as in Kafka,
	// which relies on replication there: a killed process loses nothing.
	Sync bool
	// TLS makes the listener speak TLS. Nil means plain text.
	TLS *tls.Config
	// Users, when there are any, makes clients authenticate with SASL as one of
	// them. They may all do everything.
	Users []BrokerUser
	// Log takes one info line per start and stop and the broker's own warnings.
	// Nil discards them.
	Log *slog.Logger
}

// BrokerUser is somebody who may authenticate with SASL.
type BrokerUser struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism      string
	Name, Password string
}

// Broker is a running embedded broker: one node, which leads every partition.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *dirLock
	log     *slog.Logger
	close   sync.Once
	err     error
}

// StartBroker starts a broker in this process. It returns once clients can
// connect. Topics have to be created explicitly, with retention.ms set on each:
// without, nothing is ever deleted.
func StartBroker(ctx context.Context, cfg BrokerConfig) (*Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	if cfg.Listen == "" {
		cfg.Listen = BrokerListenDefault
	}
	b := &Broker{log: logger(cfg.Log)}
	if err := b.start(ctx, cfg); err != nil {
		if b.lock != nil {
			_ = b.lock.release()
		}
		return nil, fmt.Errorf("start broker: %w", err)
	}
	b.log.InfoContext(ctx, "embedded broker started", "address", b.addr, "data_dir", cfg.DataDir)
	return b, nil
}

func (b *Broker) start(ctx context.Context, cfg BrokerConfig) error {
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(ClusterID),
		kfake.WithLogger(brokerLog{b.log}),
	}
	if cfg.DataDir != "" {
		dir, err := filepath.Abs(cfg.DataDir)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create data directory: %w", err)
		}
		if b.lock, err = lockDir(dir); err != nil {
			return err
		}
		// A directory of its own, since the broker may list what is in it.
		opts = append(opts, kfake.DataDir(filepath.Join(dir, "log")))
	}
	if cfg.Sync {
		opts = append(opts, kfake.SyncWrites())
	}
	if cfg.TLS != nil {
		opts = append(opts, kfake.TLS(cfg.TLS))
	}
	if len(cfg.Users) > 0 {
		opts = append(opts, kfake.EnableSASL())
		for _, u := range cfg.Users {
			opts = append(opts, kfake.Superuser(u.Mechanism, u.Name, u.Password))
		}
	}

	ln, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	b.addr = ln.Addr().String()
	opts = append(opts, kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }))
	if b.cluster, err = kfake.NewCluster(opts...); err != nil {
		ln.Close()
		return err
	}
	return nil
}

// Addrs returns the addresses to give to clients as seed brokers.
func (b *Broker) Addrs() []string { return []string{b.addr} }

// Close writes down what is still in memory, stops the broker and releases the
// data directory. Requests in flight are cut off. Closing twice is fine.
func (b *Broker) Close() error {
	b.close.Do(func() {
		b.cluster.Close()
		if b.lock != nil {
			b.err = b.lock.release()
		}
		b.log.Info("embedded broker stopped", "address", b.addr)
	})
	return b.err
}

// listen opens the listener here rather than in the library, which knows the
// loopback address only and advertises whatever address its listener states.
func listen(ctx context.Context, cfg BrokerConfig) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		hint := ""
		if cfg.ListenSetting != "" {
			hint = ", or choose another address with " + cfg.ListenSetting
		}
		return nil, fmt.Errorf("listen on %s: the port is taken by another program: stop it%s: %w", cfg.Listen, hint, err)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Advertise == "" {
		return ln, nil
	}
	if _, _, err := net.SplitHostPort(cfg.Advertise); err != nil {
		ln.Close()
		return nil, fmt.Errorf("advertised address %q: %w", cfg.Advertise, err)
	}
	return advertised{Listener: ln, addr: advertisedAddr(cfg.Advertise)}, nil
}

// advertised is a listener that states another address than its own.
type advertised struct {
	net.Listener
	addr net.Addr
}

func (a advertised) Addr() net.Addr { return a.addr }

type advertisedAddr string

func (advertisedAddr) Network() string  { return "tcp" }
func (a advertisedAddr) String() string { return string(a) }

// brokerLog hands the broker's own log to slog. Its info lines are about single
// requests and connections, which is what we call debug.
type brokerLog struct{ log *slog.Logger }

func (l brokerLog) Logf(level kfake.LogLevel, format string, args ...any) {
	at := slog.LevelDebug
	switch level {
	case kfake.LogLevelError:
		at = slog.LevelError
	case kfake.LogLevelWarn:
		at = slog.LevelWarn
	}
	if l.log.Enabled(context.Background(), at) {
		l.log.Log(context.Background(), at, "embedded broker", "detail", fmt.Sprintf(format, args...))
	}
}

// logger returns log, or one that discards when there is none.
func logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
