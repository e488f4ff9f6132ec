// Command publish has the CNCF Serverless Workflow Java SDK run workflows and publish
// their lifecycle events, and tells whether a data index agrees with what the SDK says
// of them.
//
//	go run ./e2e/dataindex/publish -brokers 127.0.0.1:9092 -encoding binary -rounds 10
//	go run ./e2e/dataindex/publish -brokers 127.0.0.1:9092 -url http://127.0.0.1:8080 -token "$(millrace token)"
//	go run ./e2e/dataindex/publish -record e2e/dataindex/corpus
//
// The last one sends nothing: it records all encodings anew. It needs a JDK of version
// 17 or newer, and Maven at its first run. The last line is the verdict; the exit code
// is 0, 1 where the index disagrees, and 2 where that could not be found out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/verdict"
)

// errDisagrees is the verdict that the index is not what the SDK says.
var errDisagrees = errors.New("the data index disagrees")

type options struct {
	publish    dataindex.Publish
	url, token string
	patience   time.Duration
}

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("publish", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.publish.Brokers, "brokers", "", "Kafka brokers, comma-separated")
	fs.StringVar(&o.publish.Topic, "topic", "flow-lifecycle-out", "the topic of lifecycle events")
	fs.StringVar(&o.publish.Encoding, "encoding", dataindex.Bare, "how events become records: "+strings.Join(dataindex.Encodings(), ", "))
	fs.IntVar(&o.publish.Rounds, "rounds", 1, "how often the workflows are run, 12 instances each")
	fs.StringVar(&o.publish.Record, "record", "", "record all encodings in this directory, and send nothing")
	fs.StringVar(&o.url, "url", "", "ask the data index at this address of the API whether it agrees")
	fs.StringVar(&o.token, "token", "", "the token for that")
	fs.DurationVar(&o.patience, "patience", time.Minute, "how long the index may take to agree")
	if err := fs.Parse(arguments); err != nil {
		return o, err
	}
	if (o.publish.Brokers == "") == (o.publish.Record == "") {
		return o, errors.New("give -brokers or -record")
	}
	return o, nil
}

func main() { verdict.Main("publish", errDisagrees, parse, run) }

func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "dataindex-publish-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	publisher, err := dataindex.Compile(ctx, dir, os.Stderr)
	if err != nil {
		return err
	}
	if o.publish.Record != "" {
		return record(ctx, publisher, o, out)
	}
	r, err := publisher.Run(ctx, o.publish)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "PUBLISHED: %d instances, %d events (%s)\n", len(r.Instances), len(r.Records), r.Encoding)
	if o.url == "" {
		return nil
	}
	return compare(ctx, o, r, out)
}

func record(ctx context.Context, publisher *dataindex.Publisher, o options, out io.Writer) error {
	for _, encoding := range dataindex.Encodings() {
		o.publish.Encoding = encoding
		r, err := publisher.Run(ctx, o.publish)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "RECORDED: %d instances, %d events (%s)\n", len(r.Instances), len(r.Records), encoding)
	}
	return nil
}

// compare asks the index until it agrees.
func compare(ctx context.Context, o options, r dataindex.Recording, out io.Writer) error {
	index := dataindex.GraphQL{URL: o.url, Token: o.token}
	filter := map[string]any{"id": map[string]any{"in": r.IDs()}}
	deadline, tick := time.After(o.patience), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		indexed, err := index.Instances(ctx, filter)
		if err != nil {
			return err
		}
		differences := r.Differences(indexed)
		if len(differences) == 0 {
			fmt.Fprintf(out, "AGREES: the data index says of all %d instances what the SDK says\n", len(r.Instances))
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			for _, line := range differences {
				fmt.Fprintln(out, " ", line)
			}
			fmt.Fprintf(out, "DISAGREES: in %d places, after %s\n", len(differences), o.patience)
			return errDisagrees
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
