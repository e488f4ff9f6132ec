package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
)

// Authority is a certificate authority with a server's and a client's certificate
// for 127.0.0.1, in files.
type Authority struct {
	// Server wants clients to have a certificate of this authority.
	Server *tls.Config
	// Client trusts the server and has the certificate that it wants.
	Client kafka.TLSConfig
}

// NewAuthority makes an authority, which lasts an hour.
func NewAuthority(t *testing.T) Authority {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	issue := func(serial int64, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint("cert ", serial)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			IsCA: parent == nil, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if parent == nil {
			parent, signer = cert, key
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
		require.NoError(t, err)
		cert, err = x509.ParseCertificate(der)
		require.NoError(t, err)
		return cert, key
	}
	root, rootKey := issue(1, nil, nil)
	server, serverKey := issue(2, root, rootKey)
	client, clientKey := issue(3, root, rootKey)
	clientDER, err := x509.MarshalECPrivateKey(clientKey)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return Authority{
		Server: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{server.Raw}, PrivateKey: serverKey}},
			ClientCAs:    pool, ClientAuth: tls.RequireAndVerifyClientCert,
		},
		Client: kafka.TLSConfig{
			Enabled: true, CAFile: write("ca.pem", "CERTIFICATE", root.Raw),
			CertFile: write("client.pem", "CERTIFICATE", client.Raw), KeyFile: write("client.key", "EC PRIVATE KEY", clientDER),
		},
	}
}
