package spec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what a spec carries for a program to find in its working directory. A
// ConfigMap, which holds one MiB, has room for it and a checkpoint.
const (
	MaxFiles        = 100       // in files
	MaxFileName     = 255       // bytes of one name
	MaxCarriedBytes = 960 << 10 // script and files together, decoded
)

// ScriptName is the name that a Script has in the working directory.
const ScriptName = reservedFiles + "script"

// reservedFiles is what names begin with that a request cannot give to files.
const reservedFiles = ".millrace-"

// Words returns the command line, script being the path of the file with the Script.
// That path is the last word where there is a Command too. Alone, a script is run as its
// first line says ("#!/usr/bin/env python3"), and by /bin/sh where it says nothing; it is
// not executed itself, so it works on file systems that forbid that.
func (s Process) Words(script string) []string {
	if s.Script == "" {
		return s.Command
	}
	words := slices.Clone(s.Command)
	if len(words) == 0 {
		words = interpreter(s.Script)
	}
	return append(words, script)
}

// interpreter reads the first line of a script as the kernel would: a program and at most
// one argument.
func interpreter(script string) []string {
	line, _, _ := strings.Cut(script, "\n")
	line, ok := strings.CutPrefix(line, "#!")
	line = strings.Trim(line, " \t")
	switch end := strings.IndexAny(line, " \t"); {
	case !ok || line == "":
		return []string{"/bin/sh"}
	case end < 0:
		return []string{line}
	default:
		return []string{line[:end], strings.Trim(line[end:], " \t")}
	}
}

func (p *problems) scriptText(m member) string {
	text, ok := p.text(m.pointer, m.value)
	switch {
	case !ok:
	case strings.TrimSpace(text) == "":
		p.add(m.pointer, CodeRequired, "is empty: leave it out, or give the text of a program")
	case strings.HasPrefix(text, "#!") && strings.ContainsRune(firstLine(text), '\r'):
		p.add(m.pointer, CodeInvalid, "has line ends of Windows in its first line, with which no interpreter is found")
	case strings.HasPrefix(text, "#!") && strings.ContainsRune(firstLine(text), 0):
		p.add(m.pointer, CodeInvalid, "contains a NUL character in its first line")
	case strings.HasPrefix(text, "#!") && len(firstLine(text)) > maxFirstLine:
		p.add(m.pointer, CodeTooLong, "has a first line of %d bytes, %d are allowed", len(firstLine(text)), maxFirstLine)
	}
	return text
}

// maxFirstLine is what Linux reads of it.
const maxFirstLine = 255

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func (p *problems) files(m member, carried *int) map[string][]byte {
	list, ok := p.members(m.pointer, m.value)
	if !ok {
		return nil
	}
	if len(list) > MaxFiles {
		p.add(m.pointer, CodeOutOfRange, "has %d files, %d are allowed", len(list), MaxFiles)
		return nil
	}
	files := make(map[string][]byte, len(list))
	for _, f := range list {
		named := p.fileName(f)
		content, ok := p.fileContent(f)
		*carried += len(content)
		if named && ok {
			files[f.name] = content
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, both := files[dir]; both {
				p.add(m.pointer+"/"+escape(name), CodeConflict, "lies in %q, which is a file itself", dir)
			}
		}
	}
	return files
}

// fileName reports names that are not those of files below the working directory on
// every system. A colon would end the path where volumes are mounted.
func (p *problems) fileName(f member) bool {
	before := len(p.all)
	switch {
	case f.name == "" || f.name != path.Clean(f.name) || path.IsAbs(f.name) || f.name == "." || f.name == ".." || strings.HasPrefix(f.name, "../"):
		p.add(f.pointer, CodeInvalid, "is no name of a file below the working directory: want one such as main.py or lib/rates.py")
	case len(f.name) > MaxFileName:
		p.add(f.pointer, CodeTooLong, "has a name of %d bytes, %d are allowed", len(f.name), MaxFileName)
	case strings.ContainsFunc(f.name, unicode.IsControl) || strings.ContainsAny(f.name, `:\`):
		p.add(f.pointer, CodeInvalid, `has a name with a control character, a colon or a backslash`)
	case strings.HasPrefix(f.name, reservedFiles):
		p.add(f.pointer, CodeReserved, "names that begin with %s are Millrace's", reservedFiles)
	}
	return len(p.all) == before
}

// fileContent decodes a text, or {"base64": "..."}.
func (p *problems) fileContent(f member) ([]byte, bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(f.value, " \t\r\n"), []byte("{")) {
		var text *string
		if err := json.Unmarshal(f.value, &text); err != nil || text == nil {
			p.add(f.pointer, CodeWrongType, `must be the text of the file, or {"base64": "..."}`)
			return nil, false
		}
		return []byte(*text), true
	}
	fields, _ := p.members(f.pointer, f.value)
	var (
		content []byte
		found   bool
	)
	for _, m := range fields {
		if m.name != "base64" {
			p.unknown(m, "base64")
			continue
		}
		text, ok := p.text(m.pointer, m.value)
		if !ok {
			return nil, false
		}
		var err error
		if content, err = base64.StdEncoding.DecodeString(text); err != nil {
			p.add(m.pointer, CodeInvalid, "is not base64 (standard alphabet, padded): %v", err)
			return nil, false
		}
		found = true
	}
	if !found {
		p.add(f.pointer+"/base64", CodeRequired, "is required: the content of the file")
	}
	return content, found
}
