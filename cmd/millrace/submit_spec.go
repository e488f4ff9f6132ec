package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/client"
)

// forPrograms says whether a flag was given that makes sense only beside something to run.
func (f submitFlags) forPrograms() bool { return f.stdin != "" || len(f.env) > 0 || len(f.include) > 0 }

// spec makes the executor's own part from the flags and arguments.
func (c *cli) spec(executor string, f submitFlags, args []string) (json.RawMessage, error) {
	if executor == "function" {
		return functionSpec(f, args)
	}
	if f.image != "" && executor != "kubernetes" {
		return nil, usagef("--image is for --executor kubernetes: the executor %s runs no images", executor)
	}
	if f.script == "-" && f.stdin == "-" {
		return nil, usagef("--script and --stdin cannot both read this command's input")
	}
	env, err := pairs("--env", f.env)
	if err != nil {
		return nil, err
	}
	spec := client.ProcessSpec{Command: args, Env: env, Image: f.image}
	if f.script != "" {
		text, err := c.readInput(f.script)
		if err != nil {
			return nil, fmt.Errorf("--script: %w", err)
		}
		if !utf8.Valid(text) { // JSON carries text only
			return nil, usagef("--script %s: is no text", f.script)
		}
		spec.Script = string(text)
	}
	if spec.Files, err = includes(f.include); err != nil {
		return nil, err
	}
	if f.stdin != "" {
		input, err := c.readInput(f.stdin)
		if err != nil {
			return nil, fmt.Errorf("--stdin: %w", err)
		}
		if utf8.Valid(input) {
			spec.Stdin = string(input)
		} else { // JSON carries text only
			spec.StdinBase64 = base64.StdEncoding.EncodeToString(input)
		}
	}
	return json.Marshal(spec)
}

// includes reads the files of --include: FILE, which keeps its base name, or NAME=FILE.
func includes(list []string) (map[string]client.File, error) {
	var files map[string]client.File
	for _, text := range list {
		name, file, named := strings.Cut(text, "=")
		if !named {
			name, file = filepath.Base(text), text
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--include: %w", err)
		}
		if files == nil {
			files = make(map[string]client.File)
		}
		if _, twice := files[name]; twice {
			return nil, usagef("--include: there are two files for the name %s: say NAME=FILE", name)
		}
		files[name] = content
	}
	return files, nil
}

func functionSpec(f submitFlags, args []string) (json.RawMessage, error) {
	if f.forPrograms() || f.script != "" || f.image != "" {
		return nil, usagef("--stdin, --env, --include, --script and --image are for programs: a function takes its arguments as JSON")
	}
	spec := client.FunctionSpec{Name: args[0]}
	switch {
	case len(args) > 2:
		return nil, usagef("a function takes its name and one JSON value, not %d arguments: quote the JSON", len(args))
	case len(args) == 2 && !json.Valid([]byte(args[1])):
		return nil, usagef("the arguments of the function are not JSON: %s", args[1])
	case len(args) == 2:
		spec.Args = json.RawMessage(args[1])
	}
	return json.Marshal(spec)
}
