package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/e2e/internal/servers"
)

// drill is one run.
type drill struct {
	options
	in    *installation
	load  *load
	flows *flows
	began time.Time

	mu    sync.Mutex
	found []string

	kills, stops, migrations int
	lockWait, acceptWait     time.Duration
	executions, instances    int
}

// line is the verdict as one line.
func (d *drill) line(word string) string {
	line := fmt.Sprintf("mixed: %s older=%s executions=%d instances=%d migrations=%d kills=%d stops=%d lock_wait=%s accept_wait=%s", word, d.ref,
		d.executions, d.instances, d.migrations, d.kills, d.stops, d.lockWait.Round(time.Millisecond), d.acceptWait.Round(time.Millisecond))
	if d.load != nil {
		line += fmt.Sprintf(" command_lines=%d repeated=%d", d.load.lines.Load(), d.load.again.Load())
	}
	return line + fmt.Sprintf(" found=%d took=%s", len(d.found), time.Since(d.began).Round(100*time.Millisecond))
}

func (d *drill) note(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// find is safe for concurrent use.
func (d *drill) find(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, fmt.Sprintf(format, args...))
	d.note("FOUND "+format, args...)
}

// stage is which versions of which roles run.
type stage struct {
	name string
	runs map[string][]version
	// flows says that workflows and sagas are begun.
	flows bool
}

// with is a stage in which some roles are those of the newer version, and all others of
// the older one.
func with(name string, roles ...string) stage {
	runs := map[string][]version{}
	for _, role := range []string{api, coordinator, relay, views, worker} {
		runs[role] = []version{older}
		if slices.Contains(roles, role) {
			runs[role] = []version{newer}
		}
	}
	return stage{name: name, runs: runs}
}

func beside(name string) stage {
	s := with(name)
	for role := range s.runs {
		s.runs[role] = []version{older, newer}
	}
	return s
}

// stages are what follows the migration.
func stages() []stage {
	all := []stage{
		with("the older version, started again on the newer schema"),
		with("newer worker", worker),
		with("newer API, older worker", api),
		with("newer coordinator", coordinator),
		with("newer relay", relay),
		with("newer projections", views),
		with("older coordinator and relay", api, views, worker),
		beside("both of everything, workflows begin"),
		with("the newer version alone", api, coordinator, relay, views, worker),
		with("back: the older version alone"),
		beside("forth again: both"),
		with("the newer version alone, to the end", api, coordinator, relay, views, worker),
	}
	for i := 7; i < len(all); i++ {
		if i != 9 {
			all[i].runs[engine], all[i].flows = []version{newer}, true
		}
	}
	return all
}

func (d *drill) run(ctx context.Context) (err error) {
	if d.in, err = install(ctx, d.options); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, d.in.close()) }()
	if _, code, err := d.in.command(ctx, older, "migrate", "up"); err != nil || code != 0 {
		return fmt.Errorf("the schema of the older version: exit code %d: %w", code, err)
	}
	d.load = &load{in: d.in, find: d.find, rate: d.rate}
	d.flows = &flows{load: d.load}
	if err := d.turn(ctx, with("the older version on its own schema")); err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { d.load.run(asking) })
	working, rest := context.WithCancel(ctx)
	defer rest()
	var workers sync.WaitGroup
	workers.Go(func() { d.flows.jobs(working) })
	err = d.drive(ctx)
	stop()
	all.Wait()
	if err == nil {
		err = d.settle(ctx)
	}
	rest()
	workers.Wait()
	if err != nil {
		return err
	}
	return d.judge(ctx)
}

// drive migrates, and goes through the stages.
func (d *drill) drive(ctx context.Context) error {
	long := d.time / time.Duration(len(stages())+1)
	pause(ctx, long)
	d.load.worstSince() // the first requests met cold programs
	if err := d.migrate(ctx); err != nil {
		return err
	}
	for i, s := range stages() {
		if i == 0 {
			// What ran before is started again: nothing may keep it from that.
			for _, m := range d.in.alive("") {
				if err := d.end(ctx, m); err != nil {
					return err
				}
			}
		}
		if err := d.turn(ctx, s); err != nil {
			return err
		}
		if s.flows {
			if err := d.flows.begin(ctx, 6); err != nil {
				return err
			}
		}
		pause(ctx, long)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.flows.resolve(ctx) // those of the stages before, too
		d.ready(ctx, s.name)
	}
	return nil
}

// migrate applies the newer schema while everything runs and somebody is in the way.
func (d *drill) migrate(ctx context.Context) error {
	held, occupied := make(chan struct{}), make(chan error, 1)
	go func() { occupied <- d.in.occupy(ctx, held) }()
	select {
	case <-held:
	case err := <-occupied:
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() { d.lockWait = d.in.watchLocks(watching) })
	began := time.Now()
	out, code, err := d.in.command(ctx, newer, "migrate", "up")
	took := time.Since(began)
	err = errors.Join(err, <-occupied)
	stop()
	watch.Wait()
	if err != nil || code != 0 {
		return fmt.Errorf("migrate up ended with %d: %w", code, err)
	}
	fmt.Print(out)
	d.migrations, d.acceptWait = strings.Count(out, "applied"), d.load.worstSince()
	d.note("%d migrations in %s under load; a statement waited for a table for up to %s, a request up to %s",
		d.migrations, took.Round(time.Millisecond), d.lockWait.Round(time.Millisecond), d.acceptWait.Round(time.Millisecond))
	if d.lockWait > waitMost {
		d.find("a statement waited %s for a table while the schema was migrated", d.lockWait)
	}
	d.ready(ctx, "after the migration")
	return nil
}

// ready has every process say that it is ready.
func (d *drill) ready(ctx context.Context, when string) {
	var last []string
	err := servers.Until(ctx, 30*time.Second, "all are ready", func() (bool, error) {
		last = d.in.unready(ctx)
		return len(last) == 0, nil
	})
	if err != nil && ctx.Err() == nil {
		d.find("%s: %v", when, last)
	}
}

// end ends a process, every other one with SIGKILL. An API ends in order, as one does
// behind a balancer: what it has been asked is answered.
func (d *drill) end(ctx context.Context, m *member) error {
	kill := (d.kills+d.stops)%2 == 0 && m.role != api
	if kill {
		d.kills++
	} else {
		d.stops++
	}
	return d.in.leave(ctx, m, kill)
}

// turn has the processes of a stage run, and no others: those that come first.
func (d *drill) turn(ctx context.Context, s stage) error {
	d.note("%s", s.name)
	var leave []*member
	for _, role := range []string{engine, worker, views, relay, coordinator, api} {
		there := map[version]bool{}
		for _, m := range d.in.alive(role) {
			if there[m.version] = slices.Contains(s.runs[role], m.version); !there[m.version] {
				leave = append(leave, m)
			}
		}
		for _, v := range s.runs[role] {
			if !there[v] {
				if err := d.in.start(ctx, v, role); err != nil {
					return err
				}
			}
		}
		if role == engine {
			there, err := d.sagas(ctx, len(s.runs[engine]) > 0)
			if err != nil {
				return err
			}
			leave = append(leave, there...)
		}
	}
	for _, m := range leave {
		if err := d.end(ctx, m); err != nil {
			d.find("%v", err)
		}
	}
	return nil
}

// sagas has the users' program with a saga run or not. It returns what has to leave.
func (d *drill) sagas(ctx context.Context, wanted bool) (leave []*member, err error) {
	there := d.in.alive(sagaProgram)
	if !wanted {
		return there, nil
	}
	if len(there) > 0 {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	launch := d.in.launch(self, sagaProgram, sagaProgram)
	for _, s := range settings() {
		name, value, _ := strings.Cut(s, "=")
		launch.Env = append(launch.Env, "MILLRACE_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))+"="+value)
	}
	m := &member{name: sagaProgram, role: sagaProgram, version: newer}
	// It serves nothing that would tell when it is ready; a saga cannot be started before.
	return nil, d.in.join(ctx, m, launch, func() (bool, error) { return true, nil })
}
