package spec

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
)

// Bounds of a process spec. The last two keep well below what Linux takes (128
// KiB for one string, a quarter of the stack for all), so that a spec that is
// accepted does not fail with "argument list too long".
const (
	MaxArgs        = 1024    // words in command
	MaxEnv         = 1024    // variables in env
	MaxStdinBytes  = 1 << 20 // decoded standard input
	MaxArgBytes    = 120_000 // one word, or one NAME=value
	MaxLaunchBytes = 1 << 20 // all words and variables together
	MaxLimit       = 1<<63 - 1
)

// reservedPrefix is the part of the environment that Millrace sets itself and a
// request cannot.
const reservedPrefix = "MILLRACE_"

// Process is the spec of the executor "process": a program to run.
//
//	{
//	  "command": ["python3", "-c", "print(input())"],
//	  "env": {"LOG_LEVEL": "debug"},
//	  "stdin": "hello\n",
//	  "limits": {"cpu_seconds": 10, "memory_bytes": 268435456}
//	}
type Process struct {
	// Command is the program and its arguments; required, 1 to MaxArgs words. A
	// name without a slash is looked up in PATH.
	Command []string
	// Env is added to the small environment that every attempt gets, and wins
	// over it, except for names that begin with MILLRACE_, which are refused.
	Env map[string]string
	// Stdin is what the program reads: the text of "stdin" or the decoded
	// "stdin_base64", of which a spec has at most one. Nil is an empty input.
	Stdin []byte
	// Limits are the resource limits of the program.
	Limits Limits
}

// Limits are rlimits of the program and of each process it starts. Nil leaves
// the worker's own limit, which is also the ceiling of each value.
type Limits struct {
	CPUSeconds  *uint64 // RLIMIT_CPU: SIGXCPU, then SIGKILL; per process; at least 1
	MemoryBytes *uint64 // RLIMIT_AS: address space per process; at least 1 MiB
	OpenFiles   *uint64 // RLIMIT_NOFILE: at least 3
	FileBytes   *uint64 // RLIMIT_FSIZE: size of a file written; SIGXFSZ; 0 forbids writing
	Processes   *uint64 // RLIMIT_NPROC: processes of the user, not of the attempt; not enforced for root; at least 1
}

// None says whether no limit is set.
func (l Limits) None() bool { return l == Limits{} }

// ParseProcess reads the spec of the executor "process". The error holds every
// fault as a FieldError.
func ParseProcess(raw json.RawMessage) (Process, error) {
	var (
		p        problems
		s        Process
		command  *member
		stdin    *member
		launched int
	)
	if !p.check(raw) {
		return Process{}, p.err()
	}
	fields, ok := p.members("", raw)
	if !ok {
		return Process{}, p.err()
	}
	for _, m := range fields {
		switch m.name {
		case "command":
			command = &m
			s.Command = p.command(m, &launched)
		case "env":
			s.Env = p.env(m, &launched)
		case "stdin", "stdin_base64":
			if stdin != nil {
				p.add(m.pointer, CodeConflict, "excludes %s", stdin.pointer)
				continue
			}
			stdin = &m
			s.Stdin = p.stdin(m)
		case "limits":
			s.Limits = p.limits(m)
		default:
			p.unknown(m, "command", "env", "stdin", "stdin_base64", "limits")
		}
	}
	if command == nil {
		p.add("/command", CodeRequired, "is required: the program and its arguments")
	}
	if launched > MaxLaunchBytes {
		p.add("", CodeTooLong, "command and env have %d bytes together, %d are allowed", launched, MaxLaunchBytes)
	}
	if err := p.err(); err != nil {
		return Process{}, err
	}
	return s, nil
}

func (p *problems) command(m member, launched *int) []string {
	var words []json.RawMessage
	if err := json.Unmarshal(m.value, &words); err != nil {
		p.add(m.pointer, CodeWrongType, "must be an array of strings")
		return nil
	}
	switch {
	case len(words) == 0:
		p.add(m.pointer, CodeRequired, "must name a program")
		return nil
	case len(words) > MaxArgs:
		p.add(m.pointer, CodeOutOfRange, "has %d words, %d are allowed", len(words), MaxArgs)
		return nil
	}
	list := make([]string, 0, len(words))
	for i, word := range words {
		pointer := m.pointer + "/" + strconv.Itoa(i)
		s, ok := p.text(pointer, word)
		if !ok {
			continue
		}
		*launched += len(s) + 1
		p.launchable(pointer, s)
		if i == 0 && s == "" {
			p.add(pointer, CodeRequired, "must name a program")
		}
		list = append(list, s)
	}
	return list
}

func (p *problems) env(m member, launched *int) map[string]string {
	vars, ok := p.members(m.pointer, m.value)
	if !ok {
		return nil
	}
	if len(vars) > MaxEnv {
		p.add(m.pointer, CodeOutOfRange, "has %d variables, %d are allowed", len(vars), MaxEnv)
		return nil
	}
	env := make(map[string]string, len(vars))
	for _, v := range vars {
		switch {
		case !variableName(v.name):
			p.add(v.pointer, CodeInvalid, "is no name of a variable: letters, digits and underscores, not beginning with a digit")
		case strings.HasPrefix(v.name, reservedPrefix):
			p.add(v.pointer, CodeReserved, "names that begin with %s are set by Millrace", reservedPrefix)
		}
		s, ok := p.text(v.pointer, v.value)
		if !ok {
			continue
		}
		*launched += len(v.name) + len(s) + 2
		p.launchable(v.pointer, v.name+"="+s)
		env[v.name] = s
	}
	return env
}

// launchable reports a word or variable that execve would refuse or cut.
func (p *problems) launchable(pointer, s string) {
	if strings.ContainsRune(s, 0) {
		p.add(pointer, CodeInvalid, "contains a NUL character")
	}
	if len(s) > MaxArgBytes {
		p.add(pointer, CodeTooLong, "has %d bytes, %d are allowed", len(s), MaxArgBytes)
	}
}

func (p *problems) stdin(m member) []byte {
	s, ok := p.text(m.pointer, m.value)
	if !ok {
		return nil
	}
	data := []byte(s)
	if m.name == "stdin_base64" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(s); err != nil {
			p.add(m.pointer, CodeInvalid, "is not base64 (standard alphabet, padded): %v", err)
			return nil
		}
	}
	if len(data) > MaxStdinBytes {
		p.add(m.pointer, CodeTooLong, "has %d bytes, %d are allowed", len(data), MaxStdinBytes)
	}
	return data
}

func (p *problems) limits(m member) Limits {
	var l Limits
	fields, _ := p.members(m.pointer, m.value)
	for _, f := range fields {
		switch f.name {
		case "cpu_seconds":
			l.CPUSeconds = p.count(f.pointer, f.value, 1)
		case "memory_bytes":
			l.MemoryBytes = p.count(f.pointer, f.value, 1<<20)
		case "open_files":
			l.OpenFiles = p.count(f.pointer, f.value, 3)
		case "file_bytes":
			l.FileBytes = p.count(f.pointer, f.value, 0)
		case "processes":
			l.Processes = p.count(f.pointer, f.value, 1)
		default:
			p.unknown(f, "cpu_seconds", "memory_bytes", "open_files", "file_bytes", "processes")
		}
	}
	return l
}

// variableName says whether s can be the name of a variable in every shell.
func variableName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return s != ""
}
