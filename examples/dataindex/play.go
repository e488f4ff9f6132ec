package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/client"
)

// errDiffers is the verdict that the index is not what the events say.
var errDiffers = errors.New("the data index differs")

const (
	lifecycleTopic = "flow-lifecycle-out"
	consumer       = "data-index"
	// pollEvery is how often it looks at how far the index is.
	pollEvery = 50 * time.Millisecond
	// shown is how many differences are printed.
	shown = 10
)

// play is one performance.
type play struct {
	options
	out     io.Writer
	began   time.Time
	index   dataindex.GraphQL
	api     *client.Client
	brokers []string
	history dataindex.Recording
}

// run performs it and returns errDiffers when that is the verdict.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	p := &play{options: o, out: out, began: time.Now()}
	p.say("starting a broker, a database and all of Millrace in this process ...")
	i, err := install(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.stop()) }()
	p.index, p.brokers = dataindex.GraphQL{URL: i.URL}, i.Brokers
	if p.api, err = client.New(client.Options{URL: i.URL}); err != nil {
		return err
	}
	defer p.api.Close()
	if err := p.tell(ctx); err != nil {
		return err
	}
	before, err := p.compare(ctx)
	if err != nil {
		return err
	}
	if err := p.ask(ctx); err != nil {
		return err
	}
	if err := p.rebuild(ctx); err != nil {
		return err
	}
	after, err := p.compare(ctx)
	if err != nil {
		return err
	}
	return p.judge(before, after)
}

// tell sends the events, disturbed, and waits until all of them are read.
func (p *play) tell(ctx context.Context) error {
	random := rand.New(rand.NewPCG(p.seed, 0))
	p.history = dataindex.Copies("run"+strconv.FormatUint(p.seed, 36)+"-", p.runs)
	foreign := len(p.history.Instances)
	own := stories("flat-"+strconv.FormatUint(p.seed, 36), time.Now().Add(-time.Hour), p.flat)
	p.history.Instances = append(p.history.Instances, own.Instances...)
	// The two kinds come side by side.
	records := slices.Concat(p.history.Records, own.Records)
	for from := range own.Records {
		to := random.IntN(len(records))
		records[len(p.history.Records)+from], records[to] = records[to], records[len(p.history.Records)+from]
	}
	road := dataindex.Disturb(random, records)
	p.say("%d instances that ran in the Java SDK and %d of our own: %d events", foreign, p.flat, len(records))
	if err := dataindex.Send(ctx, p.brokers, lifecycleTopic, false, road); err != nil {
		return err
	}
	p.say("sent as %d records: each one to five times, out of order, spread over all partitions (seed %d)", len(road), p.seed)
	if err := p.await(ctx, int64(len(road))); err != nil {
		return err
	}
	p.say("all are read")
	return nil
}

// await waits until the consumer has read so many records and there are no more.
func (p *play) await(ctx context.Context, records int64) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		c, err := p.api.Consumer(ctx, consumer)
		if err != nil {
			return err
		}
		var end, lag int64
		known := true
		for _, partition := range c.Partitions {
			if partition.End == nil || partition.Lag == nil {
				known = false
				continue
			}
			end, lag = end+*partition.End, lag+*partition.Lag
		}
		if known && end >= records && lag == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the events are read: %d of %d are left: %w", lag, end, ctx.Err())
		}
	}
}

// compare reads the whole index and returns its checksum. It fails with errDiffers when
// an instance or a task is not what it should be.
func (p *play) compare(ctx context.Context) (checksum string, err error) {
	indexed, err := p.index.Instances(ctx, nil)
	if err != nil {
		return "", err
	}
	differences := p.history.Differences(indexed)
	if len(indexed) != len(p.history.Instances) {
		differences = append(differences, fmt.Sprintf("%d instances are in the index, %d were told", len(indexed), len(p.history.Instances)))
	}
	if len(differences) > 0 {
		for _, line := range differences[:min(shown, len(differences))] {
			p.say("  %s", line)
		}
		fmt.Fprintf(p.out, "DIFFERENT: the data index and the events disagree in %d places (-seed %d)\n", len(differences), p.seed)
		return "", errDiffers
	}
	hash := sha256.New()
	tasks := 0
	for _, id := range slices.Sorted(maps.Keys(indexed)) {
		tasks += len(indexed[id].Tasks)
		if err := json.NewEncoder(hash).Encode(indexed[id]); err != nil {
			return "", err
		}
	}
	checksum = fmt.Sprintf("%x", hash.Sum(nil)[:8])
	p.say("%d instances and %d tasks are what the events say; checksum %s", len(indexed), tasks, checksum)
	return checksum, nil
}

// ask asks one question as a person would.
func (p *play) ask(ctx context.Context) error {
	const question = `{
  workflowInstances(first: 1, filter: {status: {eq: FAULTED}, error: {status: {gte: 400}}, output: {isNull: true}, name: {like: "payment%"}}) {
    totalCount
    nodes { id name error { title detail } taskExecutions { taskName status } }
  }
}`
	var answer struct {
		WorkflowInstances struct {
			TotalCount int
			Nodes      []json.RawMessage
		}
	}
	if err := p.index.Query(ctx, question, nil, &answer); err != nil {
		return err
	}
	want := 0
	for _, i := range p.history.Instances {
		if i.Status == "FAULTED" && i.Name == "payment-declined" {
			want++
		}
	}
	found := answer.WorkflowInstances
	p.say("which payments were declined? %d, for example", found.TotalCount)
	for _, node := range found.Nodes {
		fmt.Fprintf(p.out, "        %s\n", node)
	}
	if found.TotalCount != want {
		fmt.Fprintf(p.out, "DIFFERENT: the query finds %d declined payments, %d were told (-seed %d)\n", found.TotalCount, want, p.seed)
		return errDiffers
	}
	return nil
}

func (p *play) judge(before, after string) error {
	if before != after {
		fmt.Fprintf(p.out, "DIFFERENT: the checksum was %s and is %s after the rebuild (-seed %d)\n", before, after, p.seed)
		return errDiffers
	}
	fmt.Fprintf(p.out, "SAME: %d instances, told out of order and up to five times, are what their engines say, and the index built anew has the same checksum %s\n",
		len(p.history.Instances), after)
	return nil
}

func (p *play) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%5.1f s "+format+"\n", append([]any{time.Since(p.began).Seconds()}, args...)...)
}
