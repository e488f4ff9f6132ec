package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// stdin is the name of standard input, among files and in what is printed.
const stdin = "-"

func isFile(name string) bool {
	info, err := os.Stat(name)
	return name == stdin || err == nil && !info.IsDir()
}

// eachFile tells of files, and of those below folders that are wanted; folders whose names
// begin with a dot are passed over. read is told whether the file itself was named.
func eachFile(names []string, wanted func(path string) bool, read func(path string, named bool) error) error {
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case name != stdin && err != nil:
			return &notFoundError{fmt.Sprintf("%s: there is no such file", name)}
		case name == stdin || !info.IsDir():
			err = read(name, true)
		default:
			err = eachBelow(name, wanted, read)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eachBelow(folder string, wanted func(path string) bool, read func(path string, named bool) error) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !wanted(path):
			return nil
		}
		return read(path, false)
	})
}

// readFile reads a file, or standard input. Of one that is longer than most bytes it returns
// one byte more than that.
func (c *cli) readFile(name string, most int64) ([]byte, error) {
	source := c.in
	if name != stdin {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	return io.ReadAll(io.LimitReader(source, most+1))
}

// linted is a file that was checked.
type linted interface {
	remarks() []remark
	// report is the document that says what is wrong with it.
	report() any
}

// remark is what is wrong with a file, as it is printed.
type remark struct {
	file    string
	text    string // with the place, if there is one
	hint    string
	warning bool
}

// print prints a remark as a compiler does.
func (f remark) print(w io.Writer) error {
	file := f.file
	if file == stdin {
		file = "stdin"
	}
	if _, err := fmt.Fprintln(w, oneLine(file+":"+f.text)); err != nil || f.hint == "" {
		return err
	}
	_, err := fmt.Fprintln(w, "    "+oneLine(f.hint))
	return err
}

func countRemarks[F linted](files []F) (failures, warnings int) {
	for _, f := range files {
		for _, found := range f.remarks() {
			if found.warning {
				warnings++
				continue
			}
			failures++
		}
	}
	return failures, warnings
}

func printRemarks[F linted](w io.Writer, files []F) error {
	for _, f := range files {
		for _, found := range f.remarks() {
			if err := found.print(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellRemarks prints what is wrong with files, or a document of it, and in the end how much
// of how many, in words: 2 triggers. It is an error if something is more than a warning;
// strict: if there is anything.
func tellRemarks[F linted](c *cli, files []F, checked string, strict bool) error {
	var err error
	if c.output == "json" || c.output == "yaml" {
		reports := make([]any, len(files))
		for i, f := range files {
			reports[i] = f.report()
		}
		err = c.document(c.out, reports)
	} else {
		err = printRemarks(c.out, files)
	}
	if err != nil {
		return err
	}
	failures, warnings := countRemarks(files)
	c.notef("%s: %s, %s", checked, plural(failures, "error"), plural(warnings, "warning"))
	if failures > 0 || strict && warnings > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
