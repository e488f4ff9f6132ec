package spec

import (
	"encoding/json"
	"path"
	"strings"
	"unicode"

	"github.com/distribution/reference"
)

// Bounds of what only a spec for "kubernetes" has.
const (
	MaxImage      = 512
	MaxWorkingDir = 512
)

// Kubernetes is the spec of the executor "kubernetes": a program to run in a pod. It is a
// Process with two members more, so that a spec that has none of them runs as a process
// just as well.
//
//	{"image": "python:3.13-slim", "command": ["python3", "-c", "print(6*7)"]}
type Kubernetes struct {
	Process
	// Image is the container image; empty: the worker's default. Which ones are allowed is
	// known only to the worker. An image that is named may run the program of its own: then
	// neither Command nor Script is required, and there can be no Stdin and no Limits, which
	// are made around a command line.
	Image string
	// WorkingDir is where the program starts, absolute; empty: the working directory of the
	// attempt, where the Files are in any case.
	WorkingDir string
}

// ParseKubernetes reads the spec of the executor "kubernetes". The error holds every
// fault as a FieldError.
func ParseKubernetes(raw json.RawMessage) (Kubernetes, error) {
	p, fields, ok := open(raw)
	if !ok {
		return Kubernetes{}, p.err()
	}
	r := programReader{problems: p}
	var (
		s     Kubernetes
		named bool
	)
	for _, m := range fields {
		switch m.name {
		case "image":
			named = true
			s.Image = p.image(m)
		case "working_dir":
			s.WorkingDir = p.workingDir(m)
		default:
			if !r.read(m) {
				p.unknown(m, append(programMembers(), "image", "working_dir")...)
			}
		}
	}
	r.kubernetes(named)
	if err := p.err(); err != nil {
		return Kubernetes{}, err
	}
	s.Process = r.program
	return s, nil
}

// kubernetes checks what holds for members together.
func (r *programReader) kubernetes(named bool) {
	switch {
	case r.runs():
	case !named:
		r.add("/command", CodeRequired, "is required where there is neither a script nor an image: the program and its arguments")
	case len(r.program.Stdin) > 0:
		r.add("/command", CodeRequired, "is required with stdin: the program of the image is not known")
	case !r.program.Limits.None():
		r.add("/command", CodeRequired, "is required with limits: the program of the image is not known")
	}
	r.bounds()
	if all := r.carried + len(r.program.Stdin); all > MaxCarriedBytes && r.carried <= MaxCarriedBytes {
		r.add("", CodeTooLong, "script, files and stdin have %d bytes together, %d are allowed: let the program fetch what is larger", all, MaxCarriedBytes)
	}
}

func (p *problems) image(m member) string {
	image, ok := p.text(m.pointer, m.value)
	switch {
	case !ok:
	case image == "":
		p.add(m.pointer, CodeRequired, "is empty: leave it out for the default image")
	case len(image) > MaxImage:
		p.add(m.pointer, CodeTooLong, "has %d bytes, %d are allowed", len(image), MaxImage)
	default:
		// The kubelet reads it with the very same code.
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			p.add(m.pointer, CodeInvalid, "is no name of an image: %v", err)
		}
	}
	return image
}

func (p *problems) workingDir(m member) string {
	dir, ok := p.text(m.pointer, m.value)
	switch {
	case !ok:
	case !path.IsAbs(dir) || dir != path.Clean(dir):
		p.add(m.pointer, CodeInvalid, "must be an absolute path without . and .., such as /app")
	case len(dir) > MaxWorkingDir:
		p.add(m.pointer, CodeTooLong, "has %d bytes, %d are allowed", len(dir), MaxWorkingDir)
	case strings.ContainsFunc(dir, unicode.IsControl):
		p.add(m.pointer, CodeInvalid, "contains a control character")
	}
	return dir
}
