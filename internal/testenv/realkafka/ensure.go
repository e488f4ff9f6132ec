package realkafka

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/millrace/millrace/internal/testenv/maven"
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
	set := maven.Set{
		Name: "kafka-" + version, What: "Apache Kafka " + version + " (some 40 MB)", POM: fmt.Appendf(nil, pomXML, version, slf4jVersion),
	}
	libs, err := set.Ensure(ctx, progress)
	if err != nil {
		return "", fmt.Errorf("fetch kafka %s: %w", version, err)
	}
	return libs, nil
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
