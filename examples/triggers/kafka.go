package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/trigger"
)

var (
	//go:embed express.json
	express []byte
	//go:embed overnight.json
	overnight []byte
)

var customers = []string{"ada", "bob", "cyd", "dan", "eve", "fay"}

// repeated is which orders are sent twice.
const repeated = 5

// order is a CloudEvent in binary mode.
func (p *play) order(number int) *kgo.Record {
	return &kgo.Record{
		Topic: p.of("orders"), Partition: anywhere, Key: []byte(customers[number%len(customers)]),
		Value: fmt.Appendf(nil, `{"order": %d, "amount": {"cents": %d}}`, number, 100*number),
		Headers: []kgo.RecordHeader{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("order.placed")},
			{Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_id", Value: []byte(strconv.Itoa(number))},
			{Key: "content-type", Value: []byte("application/json")},
		},
	}
}

// Two messages of which nothing can be made: one that is no JSON, and one without an
// amount.
func (p *play) poisonous() []*kgo.Record {
	return []*kgo.Record{
		{Topic: p.of("orders"), Partition: anywhere, Key: []byte("gus"), Value: []byte("please send 2 feathers")},
		{Topic: p.of("orders"), Partition: anywhere, Key: []byte("hal"), Value: []byte(`{"order": 1002, "amount": null}`)},
	}
}

// orders are sent, some of them twice, with poison among them, and executed.
func (p *play) orders(ctx context.Context) error {
	var records []*kgo.Record
	twice := 0
	for n := 1; n <= p.options.orders; n++ {
		records = append(records, p.order(n))
		if n%repeated == 0 {
			records = append(records, p.order(n))
			twice++
		}
	}
	records = slices.Insert(records, len(records)/2, p.poisonous()...)
	p.say("")
	p.say("ORDERS: %d messages in 3 partitions: %d orders, %d of them sent again, and 2 that nobody can read", len(records), p.options.orders, twice)
	if err := p.kafka.send(ctx, records...); err != nil {
		return err
	}
	if err := p.until(ctx, "all orders are executed", func() (bool, error) { return len(p.work.of("orders")) >= p.options.orders, nil }); err != nil {
		return err
	}
	if err := p.settled(ctx, "orders"); err != nil {
		return err
	}
	done := p.work.of("orders")
	numbers, last, sorted := map[int]bool{}, map[string]int{}, true
	for _, j := range done {
		numbers[j.Order] = true
		sorted = sorted && j.Order > last[j.Customer]
		last[j.Customer] = j.Order
	}
	p.promise(len(done) == p.options.orders && len(numbers) == p.options.orders, "%d orders were executed, each once: a repetition is known by the id of its event", len(numbers))
	p.promise(sorted, "those of each customer in the order in which they were sent, although %d attempts failed and were repeated", p.work.failures())
	return nil
}

// settled waits until a trigger has no message left and every partition runs.
func (p *play) settled(ctx context.Context, id string) error {
	return p.until(ctx, "all messages of "+id+" are settled", func() (bool, error) {
		s, err := p.api.TriggerStatus(ctx, id)
		if err != nil || s.State != string(trigger.StateRunning) || s.Lag == nil || *s.Lag != 0 {
			return false, err
		}
		for _, partition := range s.Partitions {
			if partition.Committed < partition.End {
				return false, nil
			}
		}
		return len(s.Partitions) > 0, nil
	})
}

// poison is looked at, repaired and redriven.
func (p *play) poison(ctx context.Context) error {
	p.say("")
	p.say("POISON: it is not lost, and held nobody up")
	var ids []string
	for letter, err := range p.api.DeadLetters(ctx, client.DeadLetterFilter{Topic: p.of("orders"), Statuses: []string{"OPEN"}}, 10) {
		if err != nil {
			return err
		}
		p.say("  dead letter %s, partition %d, offset %d: %s", letter.ID, letter.Partition, letter.Offset, letter.Reason)
		ids = append(ids, letter.ID)
		if letter.Key == nil || letter.Key.Text == nil || *letter.Key.Text != "gus" {
			continue
		}
		text := `{"order": 1001, "amount": {"cents": 200}}`
		if _, err := p.api.EditLetter(ctx, letter.ID, client.LetterEdit{Value: &client.Bytes{Text: &text}, Reason: "asked the customer"}); err != nil {
			return err
		}
		p.say("  the letter of %s is edited: it is order 1001 now", *letter.Key.Text)
	}
	p.promise(len(ids) == 2, "both are dead letters, as they were received")
	p.say("  the mapping is changed: an order without an amount costs nothing")
	if err := p.apply(ctx, strings.ReplaceAll(definitions, "${body.amount.cents}", "${body.amount.cents ?? 0}")); err != nil {
		return err
	}
	result, err := p.api.Redrive(ctx, client.Redrive{IDs: ids, Reason: "repaired"})
	if err != nil {
		return err
	}
	p.say("  %d are redriven", result.Redriven)
	if err := p.until(ctx, "the redriven orders are executed", func() (bool, error) {
		return len(p.work.of("orders")) >= p.options.orders+2, nil
	}); err != nil {
		return err
	}
	cents := map[int]int{}
	for _, j := range p.work.of("orders")[p.options.orders:] {
		cents[j.Order] = j.Cents
	}
	free, there := cents[1002]
	p.promise(cents[1001] == 200 && there && free == 0, "both were executed: 1001 as it was edited, 1002 by the new mapping")
	return nil
}

// parcels need workflows, one of which is not there yet.
func (p *play) parcels(ctx context.Context) error {
	if _, err := p.api.PutDefinition(ctx, express); err != nil {
		return err
	}
	needy := p.options.parcels / 2
	var records []*kgo.Record
	for n := range p.options.parcels {
		for partition := range int32(2) {
			route := "express"
			if partition == 0 && n == needy {
				route = "overnight"
			}
			parcel := fmt.Sprintf("%d/%d", partition, n)
			records = append(records, &kgo.Record{
				Topic: p.of("parcels"), Partition: partition, Key: []byte(parcel), Value: fmt.Appendf(nil, `{"parcel": %q, "route": %q}`, parcel, route),
			})
		}
	}
	p.say("")
	p.say("PARCELS: %d in each of 2 partitions; offset %d of partition 0 needs a workflow that is not there", p.options.parcels, needy)
	if err := p.kafka.send(ctx, records...); err != nil {
		return err
	}
	var stalled client.TriggerPartition
	if err := p.until(ctx, "partition 0 stalls, and partition 1 does not", func() (bool, error) {
		s, err := p.api.TriggerStatus(ctx, "parcels")
		healthy := false
		for _, partition := range s.Partitions {
			if partition.Partition == 0 {
				stalled = partition
			} else {
				healthy = partition.State == string(trigger.StateRunning) && partition.Committed == int64(p.options.parcels)
			}
		}
		return err == nil && healthy && stalled.State == string(trigger.StateError), err
	}); err != nil {
		return err
	}
	p.say("  partition 0 stands at offset %d, key %s: %s", stalled.Offset, stalled.Key, stalled.Cause.Message)
	p.say("  what to do: %s", stalled.Cause.Hint)
	before, err := p.instances(ctx)
	if err != nil {
		return err
	}
	p.promise(stalled.Offset == int64(needy) && before[0] == needy && before[1] == p.options.parcels,
		"partition 1 went on: %d instances of it, and %d of partition 0, those before the one that stands", before[1], before[0])
	if _, err := p.api.PutDefinition(ctx, overnight); err != nil {
		return err
	}
	p.say("  the workflow is put, and nothing else is done")
	began := time.Now()
	if err := p.settled(ctx, "parcels"); err != nil {
		return err
	}
	after, err := p.instances(ctx)
	if err != nil {
		return err
	}
	p.promise(after[0] == p.options.parcels && after[1] == p.options.parcels, "partition 0 went on by itself %.1f s later: %d and %d instances",
		time.Since(began).Seconds(), after[0], after[1])
	p.started += after[0] + after[1]
	return nil
}

// instances counts those of the parcels of each partition.
func (p *play) instances(ctx context.Context) (n [2]int, err error) {
	for i, err := range p.api.Instances(ctx, client.InstanceQuery{}) {
		if err != nil {
			return n, err
		}
		if strings.HasPrefix(i.BusinessKey, "0/") {
			n[0]++
		} else {
			n[1]++
		}
	}
	return n, nil
}
