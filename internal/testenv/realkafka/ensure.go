package realkafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/embedded/child"
)

const (
	// VersionDefault is the version of Apache Kafka that is run.
	VersionDefault = "4.2.0"
	// versionEnv overrides it, for a matrix of versions.
	versionEnv = "MILLRACE_TEST_KAFKA_VERSION"
	// slf4jVersion is the one of the logging front end that Kafka is built with.
	slf4jVersion = "1.7.36"
)

// versionPattern keeps anything else out of the build file.
var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// Ensure returns the directory of the program archives of Apache Kafka, which it
// fetches with Maven (43 MB, once per user and version). Empty means the version
// in MILLRACE_TEST_KAFKA_VERSION, else VersionDefault. Progress, which may be nil,
// gets a line when something is fetched.
//
// Several processes may call it at once: one fetches, the others wait.
func Ensure(ctx context.Context, version string, progress io.Writer) (classpathDir string, err error) {
	version = cmp.Or(version, os.Getenv(versionEnv), VersionDefault)
	if !versionPattern.MatchString(version) {
		return "", fmt.Errorf("fetch kafka: %q is not a version such as %s", version, VersionDefault)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("fetch kafka: %w", err)
	}
	dir := filepath.Join(cache, "millrace", "kafka-"+version)
	libs := filepath.Join(dir, "libs")
	// The archives appear under this name by a rename when they are complete.
	if _, err := os.Stat(libs); err == nil {
		return libs, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fetch kafka: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("fetch kafka: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(libs); err == nil {
		return libs, nil // fetched by another process while we waited
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("fetch kafka: %w", err)
	}
	if progress != nil {
		fmt.Fprintf(progress, "fetching Apache Kafka %s with Maven (some 40 MB, once)\n", version)
	}
	if err := fetch(ctx, dir, libs, version); err != nil {
		return "", fmt.Errorf("fetch kafka %s: %w", version, err)
	}
	return libs, nil
}

// fetch has Maven copy Kafka and what it needs. Only a failure shows its output.
func fetch(ctx context.Context, dir, libs, version string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("find Maven, which is needed (Debian: apt-get install maven): %w", err)
	}
	part := libs + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, fmt.Appendf(nil, pomXML, version, slf4jVersion), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(mvn, "--batch-mode", "--quiet", "--strict-checksums", "--file", pom,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+part)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
	if p.Err() != nil {
		return fmt.Errorf("mvn: %w\n%s", p.Err(), bytes.TrimSpace(out.Bytes()))
	}
	return os.Rename(part, libs)
}

const pomXML = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.github.millrace</groupId>
  <artifactId>realkafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>%s</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>%s</version>
    </dependency>
  </dependencies>
</project>
`

// lockFile waits for an exclusive lock, which the kernel releases when the
// process ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err = <-locked:
	case <-ctx.Done():
		go func() { // the lock is given back when it comes at last
			err := <-locked
			_ = errors.Join(err, file.Close())
		}()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}
