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
//	  "command": ["python3", "-u"],
//	  "script": "import rates\nprint(rates.today(input()))\n",
//	  "files": {"rates.py": "def today(x): ...", "logo.png": {"base64": "iVBORw0K..."}},
//	  "env": {"LOG_LEVEL": "debug"},
//	  "stdin": "hello\n",
//	  "limits": {"cpu_seconds": 10, "memory_bytes": 268435456}
//	}
//
// Each such spec is also one of the executor "kubernetes".
type Process struct {
	// Command is the program and its arguments, 1 to MaxArgs words; required unless there
	// is a Script. A name without a slash is looked up in PATH.
	Command []string
	// Script is the text of a program; empty: none. See Words.
	Script string
	// Files are what the program finds in its working directory, by their names, which may
	// be paths below it. They are not for writing.
	Files map[string][]byte
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
	p, fields, ok := open(raw)
	if !ok {
		return Process{}, p.err()
	}
	r := programReader{problems: p}
	for _, m := range fields {
		if !r.read(m) {
			p.unknown(m, programMembers()...)
		}
	}
	if !r.runs() {
		p.add("/command", CodeRequired, "is required where there is no script: the program and its arguments")
	}
	r.bounds()
	if err := p.err(); err != nil {
		return Process{}, err
	}
	return r.program, nil
}

// programReader reads what the specs of programs have in common.
type programReader struct {
	*problems
	program  Process
	stdin    *member
	command  *member
	script   *member
	launched int // bytes of command and env
	carried  int // bytes of script and files
}

func programMembers() []string {
	return []string{"command", "script", "files", "env", "stdin", "stdin_base64", "limits"}
}

// read takes a member, and answers false for one that programs do not have.
func (r *programReader) read(m member) bool {
	switch m.name {
	case "command":
		r.command = &m
		r.program.Command = r.words(m, &r.launched)
	case "script":
		r.script = &m
		r.program.Script = r.scriptText(m)
		r.carried += len(r.program.Script)
	case "files":
		r.program.Files = r.files(m, &r.carried)
	case "env":
		r.program.Env = r.env(m, &r.launched)
	case "stdin", "stdin_base64":
		if r.stdin != nil {
			r.add(m.pointer, CodeConflict, "excludes %s", r.stdin.pointer)
			break
		}
		r.stdin = &m
		r.program.Stdin = r.input(m)
	case "limits":
		r.program.Limits = r.limits(m)
	default:
		return false
	}
	return true
}

// runs says whether the spec names something to run.
func (r *programReader) runs() bool { return r.command != nil || r.script != nil }

// bounds checks what only holds for members together.
func (r *programReader) bounds() {
	if r.launched > MaxLaunchBytes {
		r.add("", CodeTooLong, "command and env have %d bytes together, %d are allowed", r.launched, MaxLaunchBytes)
	}
	if r.carried > MaxCarriedBytes {
		r.add("", CodeTooLong, "script and files have %d bytes together, %d are allowed: let the program fetch what is larger", r.carried, MaxCarriedBytes)
	}
}

func (p *problems) words(m member, launched *int) []string {
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

func (p *problems) input(m member) []byte {
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
