package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/secret"
)

// demoTimeout bounds the demonstration as a whole, far above what it takes.
const demoTimeout = 90 * time.Second

// outputKept is how much of an execution's output the table looks at.
const outputKept = 1 << 20

// performance is what became of an act.
type performance struct {
	act
	execution client.Execution
	output    string // one line that tells of the result
	ended     time.Time
	// err says why it is not known how the execution ended.
	err error
}

// asExpected says whether the act ended as it should.
func (p performance) asExpected() bool {
	return p.err == nil && p.execution.State == p.state && p.execution.Attempt == p.attempt
}

// demonstrate runs the demonstration on the instance that has just become ready
// and says how it went. A fault is reported and ends nothing but the
// demonstration; so does the end of ctx.
func (c *cli) demonstrate(ctx context.Context, config configs.Config, r app.Running, began time.Time) {
	limited, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	show, err := c.perform(limited, config, r)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(c.err, "The demonstration was interrupted.")
		return
	case err != nil:
		fmt.Fprintf(c.err, "millrace: demonstration: %s\n", explain(err))
	default:
		if err := c.reportShow(show, began); err != nil {
			return // the terminal has gone away
		}
	}
	c.nextSteps(config, r, show.retried())
}

// show is a demonstration that was performed.
type show struct {
	performances []performance
	// The times of the first submission, the first result and the last one.
	began, first, ended time.Time
}

// retried returns the id of an execution with a second attempt.
func (s show) retried() string {
	for _, p := range s.performances {
		if p.attempt > 1 && p.err == nil {
			return p.execution.ID
		}
	}
	return ""
}

// perform submits all acts and waits for their ends.
func (c *cli) perform(ctx context.Context, config configs.Config, r app.Running) (show, error) {
	api, err := demoClient(config, r)
	if err != nil {
		return show{}, err
	}
	defer api.Close()
	ctx, cancel := context.WithCancel(ctx)
	acts := workload(findPython(ctx))
	s := show{performances: make([]performance, len(acts)), began: time.Now()}
	type result struct {
		index int
		performance
	}
	results := make(chan result)
	started := 0
	// Nobody is left behind: those who watch end with ctx.
	defer func() {
		cancel()
		for ; started > 0; started-- {
			<-results
		}
	}()
	for i, a := range acts {
		e, err := api.Submit(ctx, a.request)
		if err != nil {
			return s, fmt.Errorf("submit %q: %w", a.title, err)
		}
		started++
		go func() { results <- result{i, c.watchAct(ctx, api, a, e)} }()
	}
	bar := c.newProgress(len(acts))
	defer bar.finish()
	for started > 0 {
		done := <-results
		started--
		if s.first.IsZero() || done.ended.Before(s.first) {
			s.first = done.ended
		}
		if done.ended.After(s.ended) {
			s.ended = done.ended
		}
		s.performances[done.index] = done.performance
		bar.step(done.performance)
	}
	return s, nil
}

// demoClient returns a client of the instance in this process.
func demoClient(config configs.Config, r app.Running) (*client.Client, error) {
	if r.URL == "" {
		return nil, errors.New("it goes through the API, and this process does not play the role api")
	}
	token := config.API.Auth.Token
	if token.IsZero() && config.API.Auth.Mode != configs.AuthOff {
		var err error
		if token, err = configs.ReadToken(cmp.Or(config.API.Auth.TokenFile, configs.TokenFile(config.DataDir))); err != nil {
			return nil, err
		}
	} else if config.API.Auth.Mode == configs.AuthOff {
		token = secret.Secret{}
	}
	return client.New(client.Options{URL: r.URL, Token: token, UserAgent: "millrace-demo/" + buildVersion()})
}

// watchAct follows one execution to its end by its events.
func (c *cli) watchAct(ctx context.Context, api *client.Client, a act, e client.Execution) (p performance) {
	p = performance{act: a, execution: e}
	defer func() { p.ended = cmp.Or(p.ended, time.Now()) }() // also when it is not known how it ended
	for event, err := range api.Watch(ctx, client.WatchOptions{ExecutionID: e.ID}) {
		if err != nil {
			p.err = err
			return p
		}
		if event.Type == client.EventStarted && a.cancel {
			if _, err := api.Cancel(ctx, e.ID, "shown how"); err != nil {
				p.err = fmt.Errorf("cancel: %w", err)
				return p
			}
		}
	}
	p.execution, p.err = c.poll(ctx, api, e.ID)
	p.ended = time.Now()
	if p.err != nil {
		return p
	}
	p.output, p.err = outcomeLine(ctx, api, p.execution)
	return p
}

// progress tells a person how far the demonstration is.
type progress struct {
	c    *cli
	bar  *progressbar.ProgressBar
	all  int
	done int
}

func (c *cli) newProgress(all int) *progress {
	fmt.Fprintf(c.out, "\nA demonstration: %d executions of real programs, all submitted over the API.\n\n", all)
	p := &progress{c: c, all: all}
	if c.errTerminal {
		p.bar = progressbar.NewOptions(all,
			progressbar.OptionSetWriter(c.err), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(true),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd(),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
			progressbar.OptionSetRenderBlankState(true),
		)
	}
	return p
}

// step counts one execution that has ended.
func (p *progress) step(ended performance) {
	p.done++
	if p.bar == nil {
		fmt.Fprintf(p.c.err, "%2d/%d  %-9s  %s\n", p.done, p.all, ended.execution.State, ended.title)
		return
	}
	p.bar.Describe(fmt.Sprintf("%-9s %s", ended.execution.State, ended.title))
	_ = p.bar.Add(1) // a terminal that has gone away is no reason to stop
}

// finish leaves no half of a bar behind.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}

// outcomeLine tells of a result in one line: the beginning of what a program
// wrote, or why it came to nothing.
func outcomeLine(ctx context.Context, api *client.Client, e client.Execution) (string, error) {
	if e.Result == nil {
		return "", nil
	}
	if e.State == client.Completed {
		if len(e.Result.Value) > 0 {
			return string(e.Result.Value), nil
		}
		return firstLine(ctx, api, e, "stdout", e.Result.Stdout)
	}
	reason := resultText(e.Result)
	if e.Result.ExitCode != nil {
		reason = fmt.Sprintf("exit code %d", *e.Result.ExitCode)
	}
	if e.State == client.Cancelled && e.Cancel != nil && e.Cancel.Reason != "" {
		reason = e.Cancel.Reason
	}
	said, err := lastLine(ctx, api, e)
	return joined(reason, said), err
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

func readStream(ctx context.Context, api *client.Client, e client.Execution, stream string) ([]byte, error) {
	var out bytes.Buffer
	_, err := api.Output(ctx, e.ID, stream, e.Attempt, &limitedBuffer{&out, outputKept})
	if errors.Is(err, errOutputKept) {
		err = nil
	}
	return out.Bytes(), err
}

// errOutputKept ends a download of which enough was read.
var errOutputKept = errors.New("enough was read")

// limitedBuffer takes so many bytes and then errOutputKept.
type limitedBuffer struct {
	out  *bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.out.Write(p[:n])
	if n < len(p) {
		return n, errOutputKept
	}
	return n, nil
}
