package dataindex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// eventIDs are the only UUIDs in a recording.
var eventIDs = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Copy returns the recording as if the workflows had been run once more: with other
// instances and other ids of events. The same name gives the same copy.
func (r Recording) Copy(name string) Recording {
	var ids []string
	for _, i := range r.Instances {
		ids = append(ids, i.ID, i.ID+"-"+name)
	}
	renamed := strings.NewReplacer(ids...)
	fresh := func(text string) string {
		return eventIDs.ReplaceAllStringFunc(renamed.Replace(text), func(id string) string {
			return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name+id)).String()
		})
	}
	out := Recording{Encoding: r.Encoding}
	for _, record := range r.Records {
		moved := Record{Value: fresh(record.Value)}
		if record.Key != nil {
			key := fresh(*record.Key)
			moved.Key = &key
		}
		for _, h := range record.Headers {
			moved.Headers = append(moved.Headers, [2]string{h[0], fresh(h[1])})
		}
		out.Records = append(out.Records, moved)
	}
	for _, i := range r.Instances {
		i.ID += "-" + name
		out.Instances = append(out.Instances, i)
	}
	return out
}

// Copies returns n copies of every recording as one: a history of many workflows, in
// the order in which it happened.
func Copies(name string, n int) Recording {
	var all Recording
	for i := range n {
		for _, encoding := range Encodings() {
			r := Recorded(encoding).Copy(name + strconv.Itoa(i))
			all.Records = append(all.Records, r.Records...)
			all.Instances = append(all.Instances, r.Instances...)
		}
	}
	return all
}

// Disturb returns the records as they come over a bad road: each one to five times,
// in another order within a window, and some of them long after all others.
func Disturb(random *rand.Rand, records []Record) []Record {
	const window, most, late = 200, 5, 20 // one in late is
	var road, delayed []Record
	for _, r := range records {
		for range 1 + random.IntN(most) {
			if random.IntN(late) == 0 {
				delayed = append(delayed, r)
			} else {
				road = append(road, r)
			}
		}
	}
	for from := range road {
		to := from + random.IntN(min(window, len(road)-from))
		road[from], road[to] = road[to], road[from]
	}
	random.Shuffle(len(delayed), func(i, j int) { delayed[i], delayed[j] = delayed[j], delayed[i] })
	return append(road, delayed...)
}

// Send publishes records to a topic. By key they go where any producer would send
// them, else they are spread over all partitions, so that events of one instance are
// read by different consumers.
func Send(ctx context.Context, brokers []string, topic string, byKey bool, records []Record) error {
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic)}
	if !byKey {
		opts = append(opts, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	defer client.Close()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		out := r.Of(topic)
		batch[i] = &kgo.Record{Topic: topic, Key: out.Key, Value: out.Value}
		for _, h := range out.Headers {
			batch[i].Headers = append(batch[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	if err := client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	return nil
}
