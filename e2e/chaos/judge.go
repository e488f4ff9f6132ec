package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/testenv/program"
	"github.com/millrace/millrace/topics"
)

// place is where a record lies.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// evidence is everything that a run has left.
type evidence struct {
	facts     []workload.StoredFact
	effects   []check.Effect
	notes     []check.Effect
	sent      []check.Sent
	letters   []check.Letter
	positions []check.Position
	records   []check.Logged
}

func (s *session) collect(ctx context.Context) (e evidence, err error) {
	db := s.world.DB
	if e.facts, err = workload.Facts(ctx, db); err != nil {
		return e, err
	}
	if e.effects, err = workload.Effects(ctx, db); err != nil {
		return e, err
	}
	if e.notes, err = workload.Notes(s.world.NotesFile()); err != nil {
		return e, err
	}
	if e.sent, err = workload.Outbox(ctx, db); err != nil {
		return e, err
	}
	if e.letters, err = workload.Letters(ctx, db); err != nil {
		return e, err
	}
	if e.positions, err = workload.Positions(ctx, db); err != nil {
		return e, err
	}
	filed := map[place]bool{}
	for _, l := range e.letters {
		filed[place{l.Topic, l.Partition, l.Offset}] = true
	}
	e.records, err = workload.Records(ctx, s.world.Kafka.Addrs(), []string{
		string(topics.ExecutionEvents), string(topics.ExecutionTasks), string(workload.Ledger), string(workload.Echo),
		string(workload.Blocked), string(workload.Corpus),
	}, func(l check.Logged) bool { return filed[place{l.Topic, l.Partition, l.Offset}] })
	return e, err
}

// on returns the facts for a topic that can have an effect. Where blocking is set,
// poison holds up its key and so is in order like the others.
func (e evidence) on(topic topics.Topic, blocking bool) []check.Fact {
	var found []check.Fact
	for _, f := range e.facts {
		if f.Topic == topic && !f.Gone {
			f.Poison = f.Poison && !blocking
			found = append(found, f.Fact)
		}
	}
	return found
}

func by(consumer string, effects []check.Effect) []check.Effect {
	var found []check.Effect
	for _, e := range effects {
		if e.Consumer == consumer {
			found = append(found, e)
		}
	}
	return found
}

// judge holds what is left against the invariants.
func (s *session) judge(ctx context.Context) error {
	began := time.Now()
	e, err := s.collect(ctx)
	if err != nil {
		return err
	}
	add := func(defects []check.Defect) { s.findings.Add(defects...) }
	phantoms := s.torture.Phantoms.Load()
	var all []check.Fact
	for _, f := range e.facts {
		all = append(all, f.Fact)
	}
	add(check.Acknowledged(s.producer.Acked(), all))
	for consumer, facts := range map[string][]check.Fact{
		workload.LedgerTx: e.on(workload.Ledger, false), workload.LedgerBatch: e.on(workload.Ledger, false),
		workload.BlockedLedger: e.on(workload.Blocked, true), workload.CorpusLedger: e.on(workload.Corpus, false),
		workload.MovedLedger: e.on(workload.Moved, false),
	} {
		add(check.Ledger(consumer, facts, by(consumer, e.effects), phantoms))
	}
	each, repeated := check.Once(by(workload.LedgerEach, e.notes))
	add(check.Ledger(workload.LedgerEach, e.on(workload.Ledger, false), each, phantoms))
	defects, again := check.External(all, e.effects, e.notes, phantoms)
	add(defects)
	add(check.Owners(e.effects))
	s.judgeLog(e, phantoms)
	s.judgeLetters(e, phantoms)
	s.judgeExecutions(ctx)
	if err := s.judgeDecisions(ctx); err != nil {
		return err
	}
	s.assertions(ctx)
	s.verify(ctx)
	s.totals = totals{
		kills: s.world.Kills.Load(), faults: s.torture.Faults.Load(), facts: int64(len(e.facts)), events: int64(len(e.records)),
		effects: int64(len(e.effects) + len(each)), executions: s.requests.Answered.Load(), letters: int64(len(e.letters)),
		republished: s.totals.republished, repeated: int64(repeated + again), inDoubt: s.producer.InDoubt.Load(),
	}
	s.world.Note("%s: judged %d records and %d effects in %s", s.name, len(e.records), s.totals.effects, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// judgeLog holds the topics against the outbox, but for the one that people cut and
// the one that is fed beside the outbox.
func (s *session) judgeLog(e evidence, phantoms bool) {
	var sent []check.Sent
	for _, row := range e.sent {
		if row.Topic != string(workload.Moved) {
			sent = append(sent, row)
		}
	}
	var records []check.Logged
	for _, r := range e.records {
		if r.Topic != string(workload.Corpus) {
			records = append(records, r)
		}
	}
	// Each fault can make a relay publish once more what it could not mark.
	copies := 1 + int(s.torture.Faults.Load())
	defects, counts := check.Log(sent, records, copies, phantoms)
	s.findings.Add(defects...)
	s.totals.republished = int64(counts.Republished)
	var ledger, corpus []check.Logged
	for _, r := range e.records {
		switch r.Topic {
		case string(workload.Ledger):
			ledger = append(ledger, r)
		case string(workload.Corpus):
			corpus = append(corpus, r)
		}
	}
	for consumer, records := range map[string][]check.Logged{workload.LedgerTx: ledger, workload.LedgerBatch: ledger, workload.CorpusLedger: corpus} {
		var mine []check.Position
		for _, p := range e.positions {
			if p.Group == "millrace-"+consumer {
				mine = append(mine, p)
			}
		}
		s.findings.Add(check.Passed(consumer, mine, records, by(consumer, e.effects), e.letters)...)
	}
}

// strays are the places of records without a fact.
func (e evidence) strays() map[place]bool {
	known := map[string]bool{}
	for _, f := range e.facts {
		known[f.EventID] = true
	}
	found := map[place]bool{}
	for _, r := range e.records {
		if !known[r.EventID] {
			found[place{r.Topic, r.Partition, r.Offset}] = true
		}
	}
	return found
}

// judgeLetters holds the dead letters against the poison. Poison that was cured
// before a consumer met it need not have one.
func (s *session) judgeLetters(e evidence, phantoms bool) {
	applied := map[string]map[string]bool{}
	for _, list := range [][]check.Effect{e.effects, e.notes} {
		for _, x := range list {
			if applied[x.EventID] == nil {
				applied[x.EventID] = map[string]bool{}
			}
			applied[x.EventID][x.Consumer] = true
		}
	}
	filed := map[string]bool{}
	for _, l := range e.letters {
		filed[l.Consumer+" "+l.EventID] = true
	}
	bad := func(topic topics.Topic, consumer string) []check.Fact {
		var found []check.Fact
		for _, f := range e.facts {
			early := f.Poison && applied[f.EventID][consumer] && !filed[consumer+" "+f.EventID]
			if f.Topic == topic && (f.Poison || f.Garbage) && !early {
				found = append(found, f.Fact)
			}
		}
		return found
	}
	of := map[string]topics.Topic{
		workload.LedgerTx: workload.Ledger, workload.LedgerBatch: workload.Ledger, workload.LedgerEach: workload.Ledger, workload.CorpusLedger: workload.Corpus,
	}
	stray := e.strays()
	for consumer, topic := range of {
		var mine []check.Letter
		for _, l := range e.letters {
			// Letters of a history that was undone are nobody's fault.
			if l.Consumer == consumer && (!phantoms || !stray[place{l.Topic, l.Partition, l.Offset}]) {
				mine = append(mine, l)
			}
		}
		s.findings.Add(check.Letters(mine, e.records, []string{consumer}, bad(topic, consumer))...)
	}
	for _, l := range e.letters {
		if _, known := of[l.Consumer]; !known {
			s.find(check.Other, "dead letters", "of %s at %s/%d offset %d, which gets none: %s", l.Consumer, l.Topic, l.Partition, l.Offset, l.Error)
		}
	}
}

// judgeExecutions holds the executions against what the API answered.
func (s *session) judgeExecutions(ctx context.Context) {
	there := map[string]string{}
	for _, row := range s.world.Texts(ctx, `SELECT id || ' ' || state FROM executions`) {
		id, state, _ := strings.Cut(row, " ")
		there[id] = state
	}
	ids := s.requests.IDs()
	for key, id := range ids {
		switch state, ok := there[id]; {
		case !ok:
			s.find(check.Lost, "executions", "%s of %s was accepted and is gone", id, key)
		case !client.Final(state):
			s.find(check.Lost, "executions", "%s of %s is still %s", id, key, state)
		}
	}
	if len(there) > len(ids) && !s.torture.Phantoms.Load() {
		s.find(check.Doubled, "executions", "there are %d, and %d were asked for", len(there), len(ids))
	}
}

// judgeDecisions holds what coordinators and workers decided against what is promised
// of it, by the events. After a restore the log tells of two histories.
func (s *session) judgeDecisions(ctx context.Context) error {
	if s.torture.Phantoms.Load() {
		return nil
	}
	h, err := history.Read(ctx, s.world.DB, history.Log)
	if err != nil {
		return err
	}
	kinds := map[string]check.Kind{"once": check.Doubled, "sequence": check.Reordered, "key": check.Reordered, "forgotten": check.Lost}
	for _, v := range history.Judge(h, history.Rules{
		Capacity: map[string]history.Resources{topics.DefaultResourceClass: {Slots: s.world.Slots()}}, Settled: true,
	}) {
		s.find(cmp.Or(kinds[v.Check], check.Other), "decisions", "%s", v)
	}
	s.world.Note("%s: judged the lives of %d executions; at most %d slots of %d were in use at once",
		s.name, len(h.Lives), history.Peaks(h)[topics.DefaultResourceClass].Slots, s.world.Slots())
	return nil
}

// farewell stops everything in order and looks for what is left.
func (s *session) farewell(ctx context.Context) {
	if err := s.world.StopAll(context.WithoutCancel(ctx)); err != nil {
		s.find(check.Other, "stopping", "%v", err)
	}
	s.producer.Close()
	left := -1
	for deadline := time.Now().Add(10 * time.Second); left != 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
		rows := s.world.Texts(ctx, `SELECT application_name || ' ' || state || ' ' || left(query, 100) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND application_name <> 'chaos'`)
		if left = len(rows); left > 0 && time.Until(deadline) < time.Second {
			s.find(check.Other, "leaks", "%d connections are left after the stop: %s", left, rows[0])
			break
		}
		<-time.After(200 * time.Millisecond)
	}
	for _, m := range s.world.Members {
		for _, path := range m.LogFiles() {
			log, err := os.ReadFile(path)
			if err != nil {
				s.find(check.Other, "logs", "%v", err)
				continue
			}
			stuck := strings.Contains(string(log), "SIGQUIT: quit")
			for _, alarm := range program.Alarms(string(log)) {
				if !stuck {
					s.find(check.Other, "logs", "%s has %q: see %s", m.Name, fmt.Sprint(alarm), path)
				}
			}
		}
	}
}
