package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
)

// submitFlags are the flags of submit.
type submitFlags struct {
	wait           bool
	timeout        time.Duration
	stdin          string
	env            []string
	labels         []string
	priority       int
	queueLimit     time.Duration
	startLimit     time.Duration
	runLimit       time.Duration
	totalLimit     time.Duration
	maxAttempts    int
	backoff        time.Duration
	retryMaxAge    time.Duration
	retryOn        []string
	neverRetryOn   []string
	idempotencyKey string
	executor       string
	image          string
	script         string
	include        []string
	resourceClass  string
	concurrencyKey string
	notBefore      string
	user           string
	file           string
}

const submitLong = `Submit an execution: a program with its arguments, or a Go function that is
registered in the workers (--executor function, with its name and its arguments as
JSON behind the dashes).

A program runs on a worker's machine, or with --executor kubernetes in a pod. It does
not run in a shell: for pipes and variables name one, as in -- sh -c 'date | tee today',
or hand a script over with --script, which runs as its #! line says, or by the command
behind the dashes. --include puts further files into its working directory.

Without --wait the command returns as soon as the request is stored; it will run
even if everything is restarted meanwhile. With --wait the output of the program is
passed on live (its stdout to stdout, its stderr to stderr), and the exit code tells
how it ended:

  0  COMPLETED
  1  FAILED, REJECTED, CANCELLED or QUARANTINED
  4  TIMED_OUT, or --timeout passed while waiting

The program's own exit code is in the result: -o json. Interrupting the wait does not
stop the execution.

--file reads a whole request as JSON, or a list of requests; flags change what it says.
--idempotency-key makes submitting again safe: the second call returns the first
execution.`

func (c *cli) submitCommand() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit [flags] -- command [args...]",
		Short: "Submit an execution, and optionally wait for its result",
		Long:  submitLong,
		Example: `  millrace submit --wait -- echo hello
  millrace submit --run-limit 30s --max-attempts 3 --label team=data -- ./nightly.sh
  echo 'some input' | millrace submit --wait --stdin - -- wc -w
  millrace submit --wait --executor kubernetes --image python:3.13 --script report.py --include rates.csv
  millrace submit --executor function -- sleep '{"duration":"1s"}'
  millrace submit --file request.json -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.submit(cmd, f, args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "wait for the end and pass on the output")
	flags.DurationVar(&f.timeout, "timeout", 0, "give up waiting after this long (the execution goes on); 0 waits for ever")
	flags.StringVar(&f.stdin, "stdin", "", "file that the program reads as its input; - is this command's input")
	flags.StringVar(&f.script, "script", "", "file with a script to run; - is this command's input")
	flags.StringArrayVar(&f.include, "include", nil, "file for the program's working directory, FILE or NAME=FILE (repeatable)")
	flags.StringVar(&f.image, "image", "", "container image, for --executor kubernetes; the default is the worker's")
	flags.StringArrayVar(&f.env, "env", nil, "environment variable of the program, NAME=value (repeatable)")
	flags.StringArrayVar(&f.labels, "label", nil, "label to find the execution by, name=value (repeatable)")
	flags.IntVar(&f.priority, "priority", 0, "1 to 5, 5 is the most urgent; the default is 3")
	flags.DurationVar(&f.queueLimit, "queue-limit", 0, "longest wait in the queue")
	flags.DurationVar(&f.startLimit, "start-limit", 0, "longest wait for a worker once it is scheduled, before it is scheduled again")
	flags.DurationVar(&f.runLimit, "run-limit", 0, "longest time that one attempt may run")
	flags.DurationVar(&f.totalLimit, "total-limit", 0, "longest time from now to the end")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "how often to try, the first attempt included; the default is 1")
	flags.DurationVar(&f.backoff, "backoff", 0, "wait before the second attempt, doubled for each further one; the default is 1s")
	flags.DurationVar(&f.retryMaxAge, "retry-max-age", 0, "start no retry later than this after now")
	flags.StringSliceVar(&f.retryOn, "retry-on", nil, "failures to retry, such as exit_code:75, signal:SIGKILL or run_limit (repeatable); the default is all but run_limit")
	flags.StringSliceVar(&f.neverRetryOn, "never-retry-on", nil, "failures not to retry, such as exit_code:64-78; lease_expired and shutdown: not to run again after it lost its worker (repeatable)")
	flags.StringVar(&f.idempotencyKey, "idempotency-key", "", "makes submitting again return the first execution")
	flags.StringVar(&f.executor, "executor", "process", "what runs it: process, kubernetes or function")
	flags.StringVar(&f.resourceClass, "resource-class", "", "pool of workers that runs it")
	flags.StringVar(&f.concurrencyKey, "concurrency-key", "", "executions with the same key share a limit")
	flags.StringVar(&f.notBefore, "not-before", "", "earliest start: a time (RFC 3339) or a duration from now")
	flags.StringVar(&f.user, "user", "", "on whose behalf it runs")
	flags.StringVar(&f.file, "file", "", "file with the request as JSON; - is this command's input")
	_ = cmd.RegisterFlagCompletionFunc("executor", fixed([]string{"process", "kubernetes", "function"})) // the flag exists
	return cmd
}

func (c *cli) submit(cmd *cobra.Command, f submitFlags, args []string) error {
	base, batch, err := c.readRequest(f)
	if err != nil {
		return err
	}
	if batch != nil {
		return c.submitBatch(cmd, batch, args)
	}
	request, err := c.buildRequest(cmd, f, base, args)
	if err != nil {
		return err
	}
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	execution, err := api.Submit(cmd.Context(), request)
	if err != nil {
		return err
	}
	if f.wait {
		return c.await(cmd.Context(), api, execution, f.timeout)
	}
	return render(c, c.out, c.executionListing([]client.Execution{execution}, true))
}

// readRequest reads --file: one request or a list of them.
func (c *cli) readRequest(f submitFlags) (client.Request, []client.Request, error) {
	var request client.Request
	if f.file == "" {
		return request, nil, nil
	}
	if f.file == "-" && (f.stdin == "-" || f.script == "-") {
		return request, nil, usagef("--file and --stdin or --script cannot both read this command's input")
	}
	text, err := c.readInput(f.file)
	if err != nil {
		return request, nil, fmt.Errorf("--file: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var list []client.Request
	var target any = &request
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		list, target = []client.Request{}, &list
	}
	if err := decoder.Decode(target); err != nil {
		return request, nil, usagef("--file %s: %s", f.file, strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return request, nil, usagef("--file %s: there is more behind the request", f.file)
	}
	return request, list, nil
}

func (c *cli) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(name)
}

// buildRequest changes the request of the file, or an empty one, by flags and
// arguments.
func (c *cli) buildRequest(cmd *cobra.Command, f submitFlags, r client.Request, args []string) (client.Request, error) {
	if f.timeout != 0 && !f.wait {
		return r, usagef("--timeout goes with --wait: to limit the execution use --run-limit or --total-limit")
	}
	if cmd.Flags().Changed("executor") || r.Executor == "" {
		r.Executor = f.executor
	}
	var err error
	switch {
	case len(args) > 0, f.script != "", f.image != "":
		r.Spec, err = c.spec(r.Executor, f, args)
	case len(r.Spec) == 0:
		err = usagef("nothing to run: name a program behind --, as in: millrace submit -- echo hello")
	case f.forPrograms():
		err = usagef("--stdin, --env and --include go with a command behind -- or a --script, not with the spec in --file")
	}
	if err != nil {
		return r, err
	}
	r.Priority = cmp.Or(f.priority, r.Priority)
	r.ResourceClass = cmp.Or(f.resourceClass, r.ResourceClass)
	r.ConcurrencyKey = cmp.Or(f.concurrencyKey, r.ConcurrencyKey)
	r.User = cmp.Or(f.user, r.User)
	r.IdempotencyKey = cmp.Or(f.idempotencyKey, r.IdempotencyKey)
	r.Limits = limits(f, r.Limits)
	r.Retry = retryPolicy(f, r.Retry)
	labels, err := pairs("--label", f.labels)
	if err != nil {
		return r, err
	}
	if len(labels) > 0 {
		all := maps.Clone(r.Labels)
		if all == nil {
			all = labels
		}
		maps.Copy(all, labels)
		r.Labels = all
	}
	return r, c.notBefore(f.notBefore, &r)
}

// retryPolicy returns base as the flags change it.
func retryPolicy(f submitFlags, base *client.Retry) *client.Retry {
	if f.maxAttempts == 0 && f.backoff == 0 && f.retryMaxAge == 0 && len(f.retryOn) == 0 && len(f.neverRetryOn) == 0 {
		return base
	}
	var r client.Retry
	if base != nil {
		r = *base
	}
	r.MaxAttempts = cmp.Or(f.maxAttempts, r.MaxAttempts)
	if f.backoff != 0 {
		r.Backoff = f.backoff.String()
	}
	if f.retryMaxAge != 0 {
		r.MaxAge = f.retryMaxAge.String()
	}
	if len(f.retryOn) > 0 {
		r.RetryOn = f.retryOn
	}
	if len(f.neverRetryOn) > 0 {
		r.NeverOn = f.neverRetryOn
	}
	return &r
}

func limits(f submitFlags, base *client.Limits) *client.Limits {
	var l client.Limits
	if base != nil {
		l = *base
	}
	for _, s := range []struct {
		flag   time.Duration
		target *string
	}{{f.queueLimit, &l.Queue}, {f.startLimit, &l.Start}, {f.runLimit, &l.Run}, {f.totalLimit, &l.Total}} {
		if s.flag != 0 {
			*s.target = s.flag.String()
		}
	}
	if l == (client.Limits{}) {
		return nil
	}
	return &l
}

func (c *cli) notBefore(text string, r *client.Request) error {
	if text == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, errDuration := time.ParseDuration(text)
		if errDuration != nil || d < 0 {
			return usagef("--not-before: want a time such as 2026-01-02T15:04:05Z or a duration such as 10m, not %q", text)
		}
		at = c.now().Add(d).UTC().Truncate(time.Millisecond)
	}
	r.NotBefore = &at
	return nil
}

// pairs reads repeated NAME=value flags.
func pairs(flag string, list []string) (map[string]string, error) {
	var m map[string]string
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("%s: want name=value, not %q", flag, text)
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[name] = value
	}
	return m, nil
}

// submitBatch submits the list of a file in one call.
func (c *cli) submitBatch(cmd *cobra.Command, batch []client.Request, args []string) error {
	for _, name := range []string{"wait", "stdin", "env", "label", "priority", "run-limit", "idempotency-key"} {
		if cmd.Flags().Changed(name) || len(args) > 0 {
			return usagef("a list of requests takes no further flags or arguments: put them into the file")
		}
	}
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	outcomes, err := api.SubmitBatch(cmd.Context(), batch)
	if err != nil {
		return err
	}
	return c.printOutcomes(cmd.Context(), outcomes)
}

func (c *cli) printOutcomes(_ context.Context, outcomes []client.Outcome) error {
	var accepted []client.Execution
	failed := 0
	for i, o := range outcomes {
		if o.Execution != nil {
			accepted = append(accepted, *o.Execution)
			continue
		}
		failed++
		text := "no outcome"
		if o.Problem != nil {
			text = o.Problem.Error()
		}
		fmt.Fprintf(c.err, "millrace: request %d: %s\n", i+1, text)
	}
	if err := render(c, c.out, c.executionListing(accepted, false)); err != nil {
		return err
	}
	if failed > 0 {
		return &exitError{code: exitFailure, text: fmt.Sprintf("%d of %d requests were refused", failed, len(outcomes))}
	}
	return nil
}
