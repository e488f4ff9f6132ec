package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/internal/secret"
)

// The files of the data directory by which others find a running instance.
const (
	urlFile     = "api.url"
	adminFile   = "admin.url"
	grpcFile    = "grpc.address"
	tokenFile   = "token"
	brokersFile = "kafka.brokers"
	dsnFile     = "postgres.dsn"
)

// Endpoints are the addresses at which a running `millrace up` can be reached.
// It leaves them in its data directory, so that the command line and users' own
// consumers on the same machine find it without being told.
type Endpoints struct {
	// URL is the base address of the REST API.
	URL string
	// AdminURL is the base address of metrics and health; empty without.
	AdminURL string
	// GRPC is the address of the gRPC API, host:port; empty without.
	GRPC string
	// Brokers are the addresses of the broker.
	Brokers []string
	// DSN is the data source name of the database.
	DSN secret.Secret
}

// WriteEndpoints leaves the endpoints in the data directory, readable by their
// owner only. Each file is replaced as a whole, so a reader never sees half of
// one. An endpoint that is empty has its file removed.
func WriteEndpoints(dataDir string, e Endpoints) error {
	files := map[string]string{
		urlFile: e.URL, adminFile: e.AdminURL, grpcFile: e.GRPC, brokersFile: strings.Join(e.Brokers, ","), dsnFile: e.DSN.Reveal(),
	}
	var errs []error
	for name, text := range files {
		path := filepath.Join(dataDir, name)
		if text == "" {
			errs = append(errs, removeFile(path))
			continue
		}
		errs = append(errs, replaceFile(path, text+"\n"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}

// RemoveEndpoints removes what WriteEndpoints wrote. Call it at the end of the
// instance; after a crash the files stay, and readers find nobody there.
func RemoveEndpoints(dataDir string) error { return WriteEndpoints(dataDir, Endpoints{}) }

// ReadEndpoints returns what WriteEndpoints wrote. What is not there is empty;
// the error is about files that are there and cannot be read.
func ReadEndpoints(dataDir string) (Endpoints, error) {
	url, errURL := readLine(filepath.Join(dataDir, urlFile))
	admin, errAdmin := readLine(filepath.Join(dataDir, adminFile))
	grpc, errGRPC := readLine(filepath.Join(dataDir, grpcFile))
	brokers, errBrokers := readLine(filepath.Join(dataDir, brokersFile))
	dsn, errDSN := readLine(filepath.Join(dataDir, dsnFile))
	if err := errors.Join(errURL, errAdmin, errGRPC, errBrokers, errDSN); err != nil {
		return Endpoints{}, fmt.Errorf("read endpoints: %w", err)
	}
	return Endpoints{URL: url, AdminURL: admin, GRPC: grpc, Brokers: splitList(brokers), DSN: secret.New(dsn)}, nil
}

// DataFiles returns the names of the files that are kept in the data directory.
func DataFiles() []string {
	return []string{urlFile, adminFile, grpcFile, tokenFile, brokersFile, dsnFile}
}

// TokenFile returns the path of the API token in a data directory.
func TokenFile(dataDir string) string { return filepath.Join(dataDir, tokenFile) }

// ReadToken returns the token in a file, empty when there is no such file.
func ReadToken(path string) (secret.Secret, error) {
	text, err := readLine(path)
	if err != nil {
		return secret.Secret{}, fmt.Errorf("read token: %w", err)
	}
	return secret.New(text), nil
}

// readLine returns the content of a small file without the white space around
// it, and "" when there is no such file.
func readLine(path string) (string, error) {
	content, err := readBounded(path, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replaceFile writes a file of mode 0600 beside path and renames it over path.
func replaceFile(path, text string) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, errWrite := file.WriteString(text)
	if err := errors.Join(errWrite, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
