package spec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor/spec"
)

func TestScriptsAndFiles(t *testing.T) {
	t.Parallel()
	s, err := spec.ParseProcess(json.RawMessage(`{"script":"print(1)\n","command":["python3","-u"],
		"files":{"main.py":"import lib.a","lib/a.py":"","logo.png":{"base64":"iVBO"}}}`))
	require.NoError(t, err)
	assert.Equal(t, map[string][]byte{"main.py": []byte("import lib.a"), "lib/a.py": {}, "logo.png": {0x89, 'P', 'N'}}, s.Files)
	assert.Equal(t, []string{"python3", "-u", "/x/script"}, s.Words("/x/script"))
	assert.Equal(t, []string{"python3", "-u"}, s.Command, "words are a list of their own")

	s, err = spec.ParseProcess(json.RawMessage(`{"command":["true","x"]}`))
	require.NoError(t, err)
	assert.Equal(t, []string{"true", "x"}, s.Words("/x/script"))
}

// A script alone is run as the kernel would run it.
func TestInterpreterOfAScript(t *testing.T) {
	t.Parallel()
	for script, want := range map[string][]string{
		"echo 1":                   {"/bin/sh"},
		"#!\necho 1":               {"/bin/sh"},
		" #!/bin/bash\n":           {"/bin/sh"},
		"#!/bin/bash":              {"/bin/bash"},
		"#! /bin/bash \necho":      {"/bin/bash"},
		"#!/usr/bin/env python3\n": {"/usr/bin/env", "python3"},
		"#!/usr/bin/env  -S  python3 -u\nprint(1)": {"/usr/bin/env", "-S  python3 -u"},
		"#!/usr/bin/awk\t-f\n":                     {"/usr/bin/awk", "-f"},
	} {
		raw, err := json.Marshal(map[string]string{"script": script})
		require.NoError(t, err)
		s, err := spec.ParseProcess(raw)
		require.NoError(t, err, script)
		assert.Equal(t, append(want, "/w/s"), s.Words("/w/s"), "%q", script)
	}
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	s, err := spec.ParseKubernetes(json.RawMessage(`{"image":"python:3.13","working_dir":"/app","command":["python3"],"stdin":"x","limits":{"open_files":9}}`))
	require.NoError(t, err)
	assert.Equal(t, spec.Kubernetes{
		Process: spec.Process{Command: []string{"python3"}, Stdin: []byte("x"), Limits: spec.Limits{OpenFiles: number(9)}},
		Image:   "python:3.13", WorkingDir: "/app",
	}, s)

	s, err = spec.ParseKubernetes(json.RawMessage(`{"image":"ghcr.io/acme/report@sha256:` + strings.Repeat("a", 64) + `","env":{"A":"b"}}`))
	require.NoError(t, err, "an image may run the program of its own")
	assert.Empty(t, s.Command)
}

// What runs as a process runs in a pod.
func TestASpecOfAProcessIsOneOfAPod(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{"command":["sh","-c","echo 1"],"env":{"A":"b"},"stdin_base64":"AP8K","limits":{"cpu_seconds":1}}`,
		`{"script":"echo 1","files":{"a":"b"}}`,
	} {
		process, err := spec.ParseProcess(json.RawMessage(raw))
		require.NoError(t, err)
		kubernetes, err := spec.ParseKubernetes(json.RawMessage(raw))
		require.NoError(t, err)
		assert.Equal(t, process, kubernetes.Process)
	}
}

func TestFaultsOfWhatIsCarried(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", spec.MaxCarriedBytes)
	many := make(map[string]string)
	for i := range spec.MaxFiles + 1 {
		many[fmt.Sprint(i)] = ""
	}
	tooMany, err := json.Marshal(map[string]any{"script": "a", "files": many})
	require.NoError(t, err)
	for _, c := range []struct {
		executor, raw string
		faults        []string
	}{
		{"process", `{"script":""}`, []string{"/script required"}},
		{"process", `{"script":" \n"}`, []string{"/script required"}},
		{"process", `{"script":null}`, []string{"/script wrong_type"}},
		{"process", `{"script":"#!/bin/sh\r\necho"}`, []string{"/script invalid"}},
		{"process", `{"script":"#!/bin/\u0000sh\necho"}`, []string{"/script invalid"}},
		{"process", `{"script":"#!` + strings.Repeat("x", 300) + `\necho"}`, []string{"/script too_long"}},
		{"process", `{"script":"` + large + `x"}`, []string{" too_long"}},
		{"process", `{"script":"x","files":{"a":"` + large + `"}}`, []string{" too_long"}},
		{"process", `{"files":{"a":"b"}}`, []string{"/command required"}},
		{"process", `{"script":"a","files":["a"]}`, []string{"/files wrong_type"}},
		{"process", string(tooMany), []string{"/files out_of_range"}},
		{"process", `{"script":"a","files":{"":"","/etc/passwd":"","../a":"","a/../b":"","a//b":"","./a":"",".":"","..":"","a/":""}}`,
			[]string{"/files/ invalid", "/files/~1etc~1passwd invalid", "/files/..~1a invalid", "/files/a~1..~1b invalid", "/files/a~1~1b invalid",
				"/files/.~1a invalid", "/files/. invalid", "/files/.. invalid", "/files/a~1 invalid"}},
		{"process", `{"script":"a","files":{"a:b":"","a\\b":"","a\nb":"",".millrace-script":"","` + strings.Repeat("x", 256) + `":""}}`,
			[]string{"/files/a:b invalid", `/files/a\b invalid`, "/files/a\nb invalid", "/files/.millrace-script reserved", "/files/" + strings.Repeat("x", 256) + " too_long"}},
		{"process", `{"script":"a","files":{"a":"","a/b/c":""}}`, []string{"/files/a~1b~1c conflict"}},
		{"process", `{"script":"a","files":{"a":7,"b":null,"c":{},"d":{"base64":"Y"},"e":{"base64":1},"f":{"base64":"","hex":""}}}`,
			[]string{"/files/a wrong_type", "/files/b wrong_type", "/files/c/base64 required", "/files/d/base64 invalid", "/files/e/base64 wrong_type", "/files/f/hex unknown_field"}},
		{"process", `{"command":["true"],"image":"busybox","working_dir":"/"}`, []string{"/image unknown_field", "/working_dir unknown_field"}},

		{"kubernetes", `{}`, []string{"/command required"}},
		{"kubernetes", `{"image":"busybox","stdin":"x"}`, []string{"/command required"}},
		{"kubernetes", `{"image":"busybox","limits":{"open_files":9}}`, []string{"/command required"}},
		{"kubernetes", `{"image":"","command":["true"]}`, []string{"/image required"}},
		{"kubernetes", `{"image":null,"command":["true"]}`, []string{"/image wrong_type"}},
		{"kubernetes", `{"image":"Busy Box","command":["true"]}`, []string{"/image invalid"}},
		{"kubernetes", `{"image":"` + strings.Repeat("x", spec.MaxImage+1) + `","command":["true"]}`, []string{"/image too_long"}},
		{"kubernetes", `{"command":["true"],"working_dir":"app"}`, []string{"/working_dir invalid"}},
		{"kubernetes", `{"command":["true"],"working_dir":"/a/../b"}`, []string{"/working_dir invalid"}},
		{"kubernetes", `{"command":["true"],"working_dir":"/` + strings.Repeat("x", spec.MaxWorkingDir) + `"}`, []string{"/working_dir too_long"}},
		{"kubernetes", `{"command":["true"],"stdin":"x","files":{"a":"` + large + `"}}`, []string{" too_long"}},
		{"kubernetes", `{"command":["true"],"imag":"busybox"}`, []string{"/imag unknown_field"}},
	} {
		err := spec.Parse(c.executor, json.RawMessage(c.raw))
		var got []string
		for _, f := range spec.FieldErrors(err) {
			got = append(got, f.Pointer+" "+f.Code)
			assert.NotEmpty(t, f.Message)
		}
		assert.ElementsMatch(t, c.faults, got, "%.200s: %v", c.raw, err)
	}
}
