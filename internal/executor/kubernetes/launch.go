package kubernetes

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/executor/spec"
)

// launcher is the shell script that sets limits and opens the standard input, and then
// becomes the program. It is used only where there is something for it to do, since not
// every image has a shell.
//
//go:embed launch.sh
var launcher string

// launcherText is the launcher without its comments, which no cluster need store.
func launcherText() string {
	var b strings.Builder
	for line := range strings.Lines(launcher) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// startFailedMark begins the termination message of a launcher that could not start the
// program.
const startFailedMark = "millrace: start failed: "

// launch returns the command line of the container for the command line of a program.
func launch(s spec.Process, words []string) []string {
	if len(s.Stdin) == 0 && s.Limits.None() {
		return words
	}
	stdin := "/dev/null"
	if len(s.Stdin) > 0 {
		stdin = stdinPath
	}
	argv := []string{shell, "-c", launcherText(), "millrace", stdin}
	for _, limit := range []struct {
		value *uint64
		unit  uint64
	}{
		// In the order and in the units of the launcher.
		{s.Limits.CPUSeconds, 1}, {s.Limits.OpenFiles, 1}, {s.Limits.FileBytes, 512}, {s.Limits.Processes, 1}, {s.Limits.MemoryBytes, 1024},
	} {
		text := "-"
		if limit.value != nil {
			units := *limit.value / limit.unit
			if *limit.value%limit.unit > 0 {
				units++
			}
			text = strconv.FormatUint(units, 10)
		}
		argv = append(argv, text)
	}
	return append(argv, words...)
}
