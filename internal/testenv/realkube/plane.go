package realkube

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/embedded/child"
)

const (
	lockPoll  = 200 * time.Millisecond
	readyPoll = 20 * time.Millisecond
	// readyLimit is how long a start may take on a machine that is busy.
	readyLimit = 2 * time.Minute
)

// errPortTaken is what a start fails with when somebody took the port.
var errPortTaken = errors.New("port is taken")

// ControlPlane is an API server with its etcd. Restart and Stop must not overlap.
type ControlPlane struct {
	binaries   Binaries
	dir        string
	etcdClient string // host:port
	etcdPeer   string
	api        string // host:port
	token      string
	ca         []byte
	client     *http.Client
	etcd       *child.Process
	server     *child.Process
}

// Start starts etcd and the API server with their files in dir, which has to be empty, and
// returns when the API answers. RBAC is on.
func Start(ctx context.Context, b Binaries, dir string) (*ControlPlane, error) {
	p := &ControlPlane{binaries: b, dir: dir}
	if err := p.prepare(); err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	for range 5 {
		err := p.start(ctx)
		if err == nil {
			return p, nil
		}
		p.Stop()
		if !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("start control plane: %w", err)
		}
		_ = os.RemoveAll(filepath.Join(dir, "data"))
	}
	return nil, fmt.Errorf("start control plane: %w each time", errPortTaken)
}

// Host is the address of the API, https://127.0.0.1:port. It stays the same.
func (p *ControlPlane) Host() string { return "https://" + p.api }

// CA is the certificate of the API server, in PEM.
func (p *ControlPlane) CA() []byte { return p.ca }

// Token is the bearer token of an administrator.
func (p *ControlPlane) Token() string { return p.token }

func (p *ControlPlane) start(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	p.etcdClient, p.etcdPeer, p.api = ports[0], ports[1], ports[2]
	if p.etcd, err = p.launch(p.binaries.Etcd, "etcd",
		"--data-dir="+filepath.Join(p.dir, "data"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://"+p.etcdClient, "--advertise-client-urls=http://"+p.etcdClient,
		"--listen-peer-urls=http://"+p.etcdPeer, "--initial-advertise-peer-urls=http://"+p.etcdPeer,
		"--initial-cluster=default=http://"+p.etcdPeer, "--quota-backend-bytes=8589934592",
	); err != nil {
		return err
	}
	if err := p.ready(ctx, p.etcd, "etcd", "http://"+p.etcdClient+"/health"); err != nil {
		return err
	}
	return p.startServer(ctx)
}

func (p *ControlPlane) startServer(ctx context.Context) error {
	_, port, err := net.SplitHostPort(p.api)
	if err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(p.dir, name) }
	if p.server, err = p.launch(p.binaries.APIServer, "kube-apiserver",
		"--etcd-servers=http://"+p.etcdClient, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+file("certs"), "--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"),
		"--token-auth-file="+file("tokens.csv"), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+file("accounts.key"),
		"--service-account-signing-key-file="+file("accounts.key"), "--service-cluster-ip-range=10.0.0.0/24",
		// Service accounts are made by a controller that is not there.
		"--disable-admission-plugins=ServiceAccount",
		// Nothing is announced to a cluster, and there is none to reach it.
		"--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1",
		"--feature-gates=PodLogsQuerySplitStreams=true", "--kubelet-preferred-address-types=InternalIP",
		"--profiling=false", "--shutdown-delay-duration=0",
	); err != nil {
		return err
	}
	return p.ready(ctx, p.server, "kube-apiserver", p.Host()+"/readyz")
}

// launch starts a program whose output goes to a file.
func (p *ControlPlane) launch(binary, name string, args ...string) (*child.Process, error) {
	log, err := os.OpenFile(p.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}
	return child.Start(cmd, syscall.SIGKILL)
}

func (p *ControlPlane) log(name string) string { return filepath.Join(p.dir, name+".log") }

// ready waits until a program answers, or has ended.
func (p *ControlPlane) ready(ctx context.Context, proc *child.Process, name, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		if p.answers(ctx, url) {
			return nil
		}
		select {
		case <-proc.Done():
			log, _ := os.ReadFile(p.log(name))
			if strings.Contains(string(log), "address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("%s has ended: %w\n%s", name, proc.Err(), tail(string(log), 15))
		default:
		}
		if err := pause(ctx, readyPoll); err != nil {
			log, _ := os.ReadFile(p.log(name))
			return fmt.Errorf("%s does not answer: %w\n%s", name, err, tail(string(log), 15))
		}
	}
}

func (p *ControlPlane) answers(ctx context.Context, url string) bool {
	answer, err := p.call(ctx, http.MethodGet, url, nil)
	return err == nil && answer != nil
}

// call makes a request and returns what was answered, an error unless with 200.
func (p *ControlPlane) call(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}

// Restart kills the API server in the middle of whatever it does, and starts it again.
func (p *ControlPlane) Restart(ctx context.Context) error {
	if err := p.server.Kill(); err != nil {
		return fmt.Errorf("restart API server: %w", err)
	}
	if err := p.startServer(ctx); err != nil {
		return fmt.Errorf("restart API server: %w", err)
	}
	return nil
}

// Compact has etcd forget all revisions before the present one.
func (p *ControlPlane) Compact(ctx context.Context) error {
	status, err := p.call(ctx, http.MethodPost, "http://"+p.etcdClient+"/v3/maintenance/status", []byte("{}"))
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	var answer struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := json.Unmarshal(status, &answer); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	_, err = p.call(ctx, http.MethodPost, "http://"+p.etcdClient+"/v3/kv/compaction",
		fmt.Appendf(nil, `{"revision":%q,"physical":true}`, answer.Header.Revision))
	if err != nil && !strings.Contains(err.Error(), "has been compacted") {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// Stop ends both processes.
func (p *ControlPlane) Stop() {
	for _, proc := range []*child.Process{p.server, p.etcd} {
		if proc != nil {
			_ = proc.Kill()
		}
	}
	p.client.CloseIdleConnections()
}

// prepare writes what both programs read: certificates, keys and tokens.
func (p *ControlPlane) prepare() error {
	var token [16]byte
	if _, err := rand.Read(token[:]); err != nil {
		return err
	}
	p.token = hex.EncodeToString(token[:])
	if err := p.write("tokens.csv", []byte(p.token+`,administrator,administrator,"system:masters"`+"\n")); err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := p.writeKey("accounts.key", accounts); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.ca)
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	return errors.Join(p.write("server.crt", p.ca), p.writeKey("server.key", key))
}

func (p *ControlPlane) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(p.dir, name), data, 0o600)
}

func (p *ControlPlane) writeKey(name string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return p.write(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

// freePorts returns addresses on loopback that nobody listens on just now.
func freePorts(n int) ([]string, error) {
	var all []net.Listener
	defer func() {
		for _, l := range all {
			l.Close()
		}
	}()
	var addresses []string
	for range n {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		all = append(all, l)
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return addresses, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
