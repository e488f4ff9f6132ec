package realkafka

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/millrace/millrace/internal/testenv/maven"
)

// Kafka's own console tools, as kafka-console-consumer.sh and
// kafka-console-producer.sh start them.
const (
	ConsoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	ConsoleProducer = "org.apache.kafka.tools.ConsoleProducer"
)

// Tool returns the command that runs one of Kafka's own tools, by its class, with
// arguments. The first call of a user fetches the tools with Maven (30 MB). They are
// those of VersionDefault whatever the broker is: a tool is a client like others.
func Tool(ctx context.Context, progress io.Writer, class string, args ...string) (*exec.Cmd, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("run %s: Java 17 or newer is needed (Debian: apt-get install default-jre-headless): %w", class, err)
	}
	set := maven.Set{
		Name: "kafka-tools-" + VersionDefault, What: "the tools of Apache Kafka " + VersionDefault + " (some 30 MB)",
		POM: fmt.Appendf(nil, toolsXML, VersionDefault, slf4jVersion),
	}
	libs, err := set.Ensure(ctx, progress)
	if err != nil {
		return nil, fmt.Errorf("fetch kafka tools: %w", err)
	}
	return exec.CommandContext(ctx, java, append([]string{
		"-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(libs, "*"), class,
	}, args...)...), nil
}

// toolsXML leaves out Kafka Connect, which the console tools do without.
const toolsXML = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.github.millrace</groupId>
  <artifactId>kafkatools</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>%s</version>
      <exclusions>
        <exclusion>
          <groupId>org.apache.kafka</groupId>
          <artifactId>connect-runtime</artifactId>
        </exclusion>
        <exclusion>
          <groupId>org.apache.kafka</groupId>
          <artifactId>connect-json</artifactId>
        </exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>%s</version>
    </dependency>
  </dependencies>
</project>
`
