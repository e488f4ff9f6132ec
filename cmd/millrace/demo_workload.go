package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/executor/spec"
)

// demoLabel marks the executions of the demonstration.
const demoLabel = "demo"

// act is one execution of the demonstration and how it should end.
type act struct {
	title   string
	request client.Request
	state   string // that it should end in
	attempt int    // that it should end with
	// cancel asks for it to be cancelled once it runs.
	cancel bool
}

const demoText = `the mill grinds what the mill race brings
and the race brings what the river gives
so the river turns the mill
`

const demoOrders = `[{"item":"flour","price":3.20,"count":12},{"item":"bran","price":1.15,"count":4}]`

// The programs in Python. They are whole programs, as somebody would submit them.
const (
	pythonWords = `import collections, sys
words = collections.Counter(sys.stdin.read().split())
print(", ".join(f"{word} {n}" for word, n in words.most_common(4)))`
	pythonPrimes = `sieve = bytearray([1]) * 200000
sieve[:2] = b"\0\0"
for n in range(2, 448):
    if sieve[n]:
        sieve[n*n::n] = bytes(len(sieve[n*n::n]))
print(sum(sieve), "primes below 200000")`
	pythonOrders = `import json, sys
orders = json.load(sys.stdin)
print("%d orders, %.2f in all" % (len(orders), sum(o["price"] * o["count"] for o in orders)))`
	pythonBroken = `import json
json.loads('{"price": 3,20}')`
)

// workload returns the acts in the order in which they are submitted. python is
// the interpreter; without one the shell does the work.
func workload(python string) []act {
	acts := []act{
		shell("say hello", `echo "hello from process $$"`),
		program("tell the machine", "uname", "-srm"),
		feed(program("count words of its input", "wc", "-w"), demoText),
		feed(shell("sort its input", "sort | head -n 1"), demoText),
		shell("write 20000 lines", "seq 1 20000"),
		shell("write bytes that are no text", `printf '\377\376\000\001'`),
		shell("work in three steps", "for i in 1 2 3; do sleep 0.4; echo step $i of 3; done | tail -n 1"),
		shell("work in a directory of its own", `pwd > here; ls | echo "files in it: $(ls | wc -l)"`),
		goFunction("call a Go function", "echo", `{"grain":"rye","sacks":7}`),
		urgent(shell("go first, with priority 5", "echo first in line")),
	}
	acts = append(acts, pythonActs(python)...)
	return append(acts,
		retried(shell("fail once, then succeed", `[ "$MILLRACE_ATTEMPT" -gt 1 ] || { echo 'the mill is still cold' >&2; exit 75; }
echo "succeeded at attempt $MILLRACE_ATTEMPT"`)),
		failing(shell("fail with a message", "echo 'no grain left' >&2; exit 3")),
		failing(program("run what is not there", "no-such-program")),
		runLimited(program("run past its time limit of 1s", "sleep", "600")),
		cancelled(program("be cancelled while running", "sleep", "600")),
	)
}

func pythonActs(python string) []act {
	if python == "" {
		return []act{
			feed(program("count lines of its input", "wc", "-l"), demoText),
			feed(shell("add up orders, in awk", `awk '{ sum += $2 * $3 } END { print NR, "orders,", sum, "in all" }'`), "flour 3.20 12\nbran 1.15 4\n"),
		}
	}
	return []act{
		feed(program("count each word, in Python", python, "-c", pythonWords), demoText),
		program("count primes, in Python", python, "-c", pythonPrimes),
		feed(program("add up JSON orders, in Python", python, "-c", pythonOrders), demoOrders),
		failing(program("crash, in Python", python, "-c", pythonBroken)),
	}
}

// findPython returns an interpreter that works where programs run: by their PATH
// and without this user's environment.
func findPython(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for _, dir := range filepath.SplitList(process.PathDefault) {
		file := filepath.Join(dir, "python3")
		cmd := exec.CommandContext(ctx, file, "-c", "print('works')")
		cmd.Env = []string{"PATH=" + process.PathDefault}
		if out, err := cmd.Output(); err == nil && strings.TrimSpace(string(out)) == "works" {
			return file
		}
	}
	return ""
}

func program(title string, command ...string) act {
	return newAct(title, spec.ExecutorProcess, client.ProcessSpec{Command: command})
}

func shell(title, script string) act { return program(title, "sh", "-c", script) }

func goFunction(title, name, args string) act {
	return newAct(title, spec.ExecutorFunction, client.FunctionSpec{Name: name, Args: json.RawMessage(args)})
}

func newAct(title, executor string, what any) act {
	encoded, err := json.Marshal(what)
	if err != nil {
		panic(err) // the workload is written here
	}
	return act{
		title: title, state: client.Completed, attempt: 1,
		request: client.Request{
			Executor: executor, Spec: encoded,
			Labels: map[string]string{demoLabel: "true", "name": title},
			Limits: &client.Limits{Run: "20s"},
		},
	}
}

// feed has the program read a text as its input.
func feed(a act, stdin string) act {
	var s client.ProcessSpec
	if err := json.Unmarshal(a.request.Spec, &s); err != nil {
		panic(err) // program made it
	}
	s.Stdin = stdin
	return withSpec(a, s)
}

func withSpec(a act, s client.ProcessSpec) act {
	labelled := newAct(a.title, a.request.Executor, s)
	a.request.Spec = labelled.request.Spec
	return a
}

func urgent(a act) act {
	a.request.Priority = 5
	return a
}

func retried(a act) act {
	a.request.Retry = &client.Retry{MaxAttempts: 3, Backoff: "500ms"}
	a.attempt = 2
	return a
}

func failing(a act) act {
	a.state = client.Failed
	return a
}

func runLimited(a act) act {
	a.request.Limits = &client.Limits{Run: "1s"}
	a.state = client.TimedOut
	return a
}

func cancelled(a act) act {
	a.cancel = true
	a.state = client.Cancelled
	return a
}
