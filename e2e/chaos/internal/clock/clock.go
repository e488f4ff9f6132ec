// Package clock builds Millrace with a wall clock that is wrong: the standard
// library's package time is compiled with one function changed, by way of an overlay.
// Nothing of the program itself is changed, and the monotonic clock, by which it
// measures how much time has passed, stays right: that is how a machine looks whose
// clock was set wrong, or is set back while the program runs.
package clock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Variable is the environment variable by which a program that Build made is told how
// wrong its clock is.
const Variable = "CHAOS_CLOCK"

// Wrong is the value of Variable for a clock that is wrong by so much from some time
// after the start of the program on.
func Wrong(by, after time.Duration) string {
	return fmt.Sprintf("%d@%d", by/time.Second, after/time.Second)
}

const program = "github.com/millrace/millrace/cmd/millrace"

// original and changed are the line of time.Now that asks the runtime.
const (
	original = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	changed  = "\tsec, nsec, mono := runtimeNow()\n\tsec += wrong(mono)\n\tif mono == 0 {"
)

const addition = `package time

import "syscall"

var wrongBy, wrongFrom = readWrong()

// readWrong reads "<seconds>@<seconds after the start>".
func readWrong() (by, from int64) {
	text, _ := syscall.Getenv("` + Variable + `")
	sign, part, at := int64(1), int64(0), false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '-':
			sign = -1
		case c == '@':
			by, part, at = sign*part, 0, true
		case '0' <= c && c <= '9':
			part = part*10 + int64(c-'0')
		}
	}
	if !at {
		return sign * part, 0
	}
	return by, part * 1e9
}

func wrong(mono int64) int64 {
	if wrongBy == 0 || mono-startNano < wrongFrom {
		return 0
	}
	return wrongBy
}
`

// Build builds the program into dir and returns its path. It has to be run within the
// module, and needs the Go toolchain; the first time it compiles everything anew,
// which takes minutes.
func Build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "millrace-clock")
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("build with another clock: find the Go toolchain: %w", err)
	}
	overlay, err := write(filepath.Join(strings.TrimSpace(string(out)), "src", "time"), dir)
	if err != nil {
		return "", fmt.Errorf("build with another clock: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, program).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with another clock: %w\n%s", err, out)
	}
	return binary, nil
}

var errChanged = errors.New("time.Now is not what it used to be")

// write writes the files of the overlay into dir, and what tells the compiler of them.
func write(source, dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), original) != 1 {
		return "", errChanged
	}
	files := map[string]string{
		"time.go":  strings.Replace(string(text), original, changed, 1),
		"wrong.go": addition,
	}
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(dir, "clock-"+name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(source, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "clock-overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}
