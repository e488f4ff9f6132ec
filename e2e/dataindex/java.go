package dataindex

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/testenv/maven"
)

//go:embed java/pom.xml java/src
var sources embed.FS

// mainClass is the program.
const mainClass = "millrace.dataindex.Main"

// Publisher is the Java program, compiled.
type Publisher struct {
	java      string
	classpath string
	dir       string
}

// Compile compiles the Java program into a directory, which must exist and is the
// caller's to remove. It needs a JDK of version 17 or newer; what the program needs
// beside that is fetched with Maven, once per user (30 MB). Progress, which may be nil,
// gets a line then.
func Compile(ctx context.Context, dir string, progress io.Writer) (*Publisher, error) {
	java, javac, err := jdk()
	if err != nil {
		return nil, fmt.Errorf("compile publisher: %w", err)
	}
	pom, err := sources.ReadFile("java/pom.xml")
	if err != nil {
		return nil, fmt.Errorf("compile publisher: %w", err)
	}
	// A changed project is another set of archives.
	sum := sha256.Sum256(pom)
	set := maven.Set{
		Name: fmt.Sprintf("serverless-workflow-sdk-%x", sum[:6]), What: "the CNCF Serverless Workflow Java SDK (some 30 MB)", POM: pom,
	}
	libs, err := set.Ensure(ctx, progress)
	if err != nil {
		return nil, fmt.Errorf("fetch the Java SDK: %w", err)
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, fmt.Errorf("compile publisher: %w", err)
	}
	src, classes := filepath.Join(dir, "java", "src", "main"), filepath.Join(dir, "classes")
	files, err := fs.Glob(os.DirFS(src), "java/millrace/dataindex/*.java")
	if err != nil || len(files) == 0 {
		return nil, errors.Join(errors.New("compile publisher: no sources"), err)
	}
	args := []string{
		"--release", "17", "-proc:none", "-Xlint:all,-path", "-Werror", "-encoding", "UTF-8",
		"-cp", filepath.Join(libs, "*"), "-d", classes,
	}
	for _, f := range files {
		args = append(args, filepath.Join(src, f))
	}
	if out, err := maven.Run(ctx, exec.Command(javac, args...)); err != nil {
		return nil, fmt.Errorf("compile publisher: %w\n%s", err, bytes.TrimSpace(out))
	}
	classpath := []string{classes, filepath.Join(src, "resources"), filepath.Join(libs, "*")}
	return &Publisher{java: java, dir: dir, classpath: strings.Join(classpath, string(filepath.ListSeparator))}, nil
}

func jdk() (java, javac string, err error) {
	const advice = "a JDK of version 17 or newer is needed (Debian: apt-get install default-jdk-headless): %w"
	if java, err = exec.LookPath("java"); err != nil {
		return "", "", fmt.Errorf(advice, err)
	}
	if javac, err = exec.LookPath("javac"); err != nil {
		return "", "", fmt.Errorf(advice, err)
	}
	return java, javac, nil
}

// Publish says what the program is to publish where.
type Publish struct {
	Encoding string
	// Brokers is the address of one broker at least, comma-separated. Empty: the events
	// are recorded and not sent.
	Brokers string
	Topic   string
	// Rounds is how often each workflow is run. Defaults to 1.
	Rounds int
	// Record is a directory for the two files of the recording; empty keeps none.
	Record string
}

// Run runs the workflows and returns what was published, once the broker has
// acknowledged all of it, with what the SDK says of the instances.
func (p *Publisher) Run(ctx context.Context, what Publish) (Recording, error) {
	run := what.Record
	if run == "" {
		var err error
		if run, err = os.MkdirTemp(p.dir, "run-"); err != nil {
			return Recording{}, fmt.Errorf("run publisher: %w", err)
		}
	}
	args := []string{
		// The just-in-time compiler costs such a short run more than it brings.
		"-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", p.classpath, mainClass,
		"--mode", what.Encoding, "--topic", what.Topic, "--rounds", strconv.Itoa(cmp.Or(what.Rounds, 1)),
		"--record", filepath.Join(run, what.Encoding+".jsonl"), "--truth", filepath.Join(run, what.Encoding+".truth.jsonl"),
	}
	if what.Brokers != "" {
		args = append(args, "--bootstrap", what.Brokers)
	}
	if out, err := maven.Run(ctx, exec.Command(p.java, args...)); err != nil {
		return Recording{}, fmt.Errorf("run publisher: %w\n%s", err, bytes.TrimSpace(out))
	}
	r, err := read(what.Encoding, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(run, name)) })
	if err != nil {
		return Recording{}, fmt.Errorf("read what was published: %w", err)
	}
	return r, nil
}
