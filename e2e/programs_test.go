package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/client"
)

// program is one execution to be, and what must become of it.
type program struct {
	kind    string
	request client.Request
	want    want
	// cancel says when the test asks for it to stop: never (""), in the state
	// QUEUED, or RUNNING.
	cancel string
	id     string // once submitted
}

// want is the one right end of a program.
type want struct {
	state    string
	exitCode int // where the program ends by itself
	reason   string
	limit    string
	// stdout returns what the attempt writes; nil stands for a program that is
	// stopped from outside, whose output may be cut off anywhere after "begun".
	stdout func(attempt int) []byte
	stderr string
	// failures is how many attempts fail by themselves before the last one, when
	// no worker is lost.
	failures int
}

// The programs append "<execution> <attempt> <what> <seconds since boot>" to the
// file E2E_TRACE, each line in one write: the order of lines is what happened.
const (
	shTrace = `trace() { read -r up _ </proc/uptime; echo "$MILLRACE_EXECUTION_ID $MILLRACE_ATTEMPT $1 $up" >>"$E2E_TRACE"; }
trace start
`
	pyTrace = `import hashlib, os, sys, time
def trace(what):
    line = f"{os.environ['MILLRACE_EXECUTION_ID']} {os.environ['MILLRACE_ATTEMPT']} {what} {time.clock_gettime(time.CLOCK_BOOTTIME):.2f}\n"
    fd = os.open(os.environ["E2E_TRACE"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)
trace("start")
`
	// The endless ones run until somebody ends them, but not for ever.
	shEndless = `echo begun; i=0; while [ $i -lt 1200 ]; do trace beat; sleep 0.1; i=$((i+1)); done`
)

func sh(script string) []string { return []string{"sh", "-c", shTrace + script} }
func py(script string) []string { return []string{"python3", "-c", pyTrace + script} }

func fixed(text string) func(int) []byte { return func(int) []byte { return []byte(text) } }

// outliving is the kind of programs whose first attempt goes on for 9 s, more than
// two quick leases: when it is not ended with its lease, it meets the second one.
const outliving = "outliving its lease"

// bigOutputs is the kind of programs that write 5 MiB.
const bigOutputs = "5 MiB of output"

// programKind makes the n-th program of a kind.
type programKind struct {
	name string
	// of200 is how many of 200 programs are of the kind.
	of200 int
	make  func(n int) program
}

func programKinds() []programKind {
	return []programKind{
		{"quick sh", 45, func(n int) program {
			text := fmt.Sprintf("hello %d", n)
			return run(client.ProcessSpec{Command: sh(`echo "$TEXT"; trace end`), Env: map[string]string{"TEXT": text}},
				want{state: client.Completed, stdout: fixed(text + "\n")})
		}},
		{"quick python", 20, func(n int) program {
			return run(client.ProcessSpec{Command: append(py(`print(sum(range(int(sys.argv[1])))); trace("end")`), fmt.Sprint(n))},
				want{state: client.Completed, stdout: fixed(fmt.Sprintln(n * (n - 1) / 2))})
		}},
		{"slow sh", 23, func(int) program {
			return run(client.ProcessSpec{Command: sh(`i=0; while [ $i -lt 10 ]; do trace beat; sleep 0.1; echo $i; i=$((i+1)); done; trace end`)},
				want{state: client.Completed, stdout: fixed("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n")})
		}},
		{"slow python", 15, func(n int) program {
			return run(client.ProcessSpec{Command: py(fmt.Sprintf("for i in range(40):\n    trace('beat'); time.sleep(0.05)\nprint('slow %d')\ntrace('end')", n))},
				want{state: client.Completed, stdout: fixed(fmt.Sprintf("slow %d\n", n))})
		}},
		{outliving, 7, func(int) program {
			return run(client.ProcessSpec{Command: py(`
for _ in range(180 if os.environ["MILLRACE_ATTEMPT"] == "1" else 10):
    trace("beat")
    time.sleep(0.05)
trace("end")`)}, want{state: client.Completed, stdout: fixed("")})
		}},
		{"failing", 20, func(n int) program {
			code := []int{1, 2, 3, 42, 126, 127, 128, 254, 255}[n%9]
			return run(client.ProcessSpec{Command: sh(fmt.Sprintf(`echo partial; echo "failing with %d" >&2; trace end; exit %d`, code, code))},
				want{state: client.Failed, exitCode: code, reason: "exit_code", stdout: fixed("partial\n"), stderr: fmt.Sprintf("failing with %d\n", code)})
		}},
		{"run limit", 10, func(n int) program {
			script := shEndless
			if n%2 == 1 {
				script = "trap '' TERM; " + script // only SIGKILL ends it
			}
			p := run(client.ProcessSpec{Command: sh(script)}, want{state: client.TimedOut, reason: "run_limit", limit: "run"})
			p.request.Limits = &client.Limits{Run: "700ms"}
			return p
		}},
		{"cancelled while running", 10, func(int) program {
			p := run(client.ProcessSpec{Command: sh(shEndless)}, want{state: client.Cancelled, reason: "cancelled"})
			p.cancel = client.Running
			return p
		}},
		{"cancelled while queued", 10, func(int) program {
			p := run(client.ProcessSpec{Command: sh(`trace end`)}, want{state: client.Cancelled, reason: "cancelled", stdout: fixed("")})
			later := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
			p.request.NotBefore, p.cancel = &later, client.Queued
			return p
		}},
		{bigOutputs, 6, func(n int) program {
			return run(client.ProcessSpec{Command: append(py(bigScript), fmt.Sprint(n))},
				want{state: client.Completed, stdout: func(int) []byte { return bigOutput(n) }})
		}},
		{"invalid UTF-8", 10, func(int) program {
			return run(client.ProcessSpec{Command: sh(`printf 'a\000\377\376\300\200z\r\n'; printf '\355\240\200' >&2; trace end`)},
				want{state: client.Completed, stdout: fixed("a\x00\xff\xfe\xc0\x80z\r\n"), stderr: "\xed\xa0\x80"})
		}},
		{"reading stdin", 10, func(n int) program {
			spec, text := client.ProcessSpec{Command: sh(`cat; trace end`)}, fmt.Sprintf("line %d\nüber\n", n)
			if spec.Stdin = text; n%2 == 1 {
				text = strings.Repeat("\x00\xff\n", 10_000+n)
				spec.Stdin, spec.StdinBase64 = "", base64.StdEncoding.EncodeToString([]byte(text))
			}
			return run(spec, want{state: client.Completed, stdout: fixed(text)})
		}},
		{"stderr only", 6, func(n int) program {
			return run(client.ProcessSpec{Command: py(fmt.Sprintf("print('only %d', file=sys.stderr)\ntrace('end')", n))},
				want{state: client.Completed, stdout: fixed(""), stderr: fmt.Sprintf("only %d\n", n)})
		}},
		{"second attempt succeeds", 8, func(int) program {
			p := run(client.ProcessSpec{Command: sh(`echo "attempt $MILLRACE_ATTEMPT"; trace end; [ "$MILLRACE_ATTEMPT" -ge 2 ] || exit 9`)},
				want{state: client.Completed, failures: 1, stdout: func(attempt int) []byte { return fmt.Appendf(nil, "attempt %d\n", attempt) }})
			p.request.Retry = &client.Retry{MaxAttempts: 3, Backoff: "200ms"}
			return p
		}},
	}
}

// bigScript writes 5 MiB that follow from its argument.
const bigScript = `
block, out = sys.argv[1].encode(), sys.stdout.buffer
for _ in range(5 * 1024 * 1024 // 32):
    block = hashlib.sha256(block).digest()
    out.write(block)
out.flush()
trace("end")
`

func bigOutput(n int) []byte {
	var out bytes.Buffer
	block := sha256.Sum256(fmt.Append(nil, n))
	for range 5 * 1024 * 1024 / len(block) {
		out.Write(block[:])
		block = sha256.Sum256(block[:])
	}
	return out.Bytes()
}

func run(spec client.ProcessSpec, w want) program {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return program{request: client.Request{Executor: "process", Spec: text}, want: w}
}

// programs makes a mix of n programs, each kind among them: first those that
// outlive their lease, then the others in an order that is mixed but the same each
// time. They leave their traces in the file.
func programs(n int, trace string) []*program {
	var all []*program
	for _, kind := range programKinds() {
		for i := range max(1, kind.of200*n/200) {
			p := kind.make(i)
			p.kind = kind.name
			var spec client.ProcessSpec
			if err := json.Unmarshal(p.request.Spec, &spec); err != nil {
				panic(err) // run encoded it
			}
			env := map[string]string{"E2E_TRACE": trace}
			maps.Copy(env, spec.Env)
			spec.Env = env
			p.request.Spec, _ = json.Marshal(spec) // strings can be encoded
			p.request.Labels = map[string]string{"kind": kind.name}
			all = append(all, &p)
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rank := func(p *program) int {
		if p.kind == outliving {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b *program) int { return rank(a) - rank(b) })
	for i, p := range all {
		p.request.IdempotencyKey = fmt.Sprintf("program-%d", i)
	}
	return all
}

// simple makes n programs that print their number after a while.
func simple(n int, seconds string) []*program {
	all := make([]*program, n)
	for i := range all {
		text := fmt.Sprintf("simple %d\n", i)
		p := run(client.ProcessSpec{Command: []string{"sh", "-c", "sleep " + seconds + "; printf '" + text + "'"}},
			want{state: client.Completed, stdout: fixed(text)})
		p.kind, p.request.IdempotencyKey = "simple", fmt.Sprintf("simple-%d", i)
		all[i] = &p
	}
	return all
}
