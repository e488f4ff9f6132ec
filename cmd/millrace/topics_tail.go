package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

func (c *cli) topicsTailCommand() *cobra.Command {
	var begin bool
	var limit int
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print the records of a topic as they arrive",
		Long: `Print the records of a topic as they arrive, until interrupted. No consumer group is
involved: nothing is committed and nobody else is disturbed. TOPIC is the logical name
or the name at the broker. With -o json each record is one line.`,
		Example: `  millrace topics tail execution_events
  millrace topics tail dead_letters --from-beginning --limit 10 -o json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if limit < 0 {
				return usagef("--limit: want 0 or more, not %d", limit)
			}
			return c.tail(cmd.Context(), names[0], begin, limit)
		},
	}
	cmd.Flags().BoolVar(&begin, "from-beginning", false, "start with the oldest record rather than with the next one")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after this many records; 0 never stops")
	return cmd
}

// errEnough ends a tail that has printed what it was asked for.
var errEnough = errors.New("enough")

func (c *cli) tail(ctx context.Context, name string, begin bool, limit int) error {
	config, settings, err := c.kafkaSettings()
	if err != nil {
		return err
	}
	physical := config.TopicNaming().Physical(topics.Topic(name))
	from := kafka.TailConfig{Topics: []string{physical}, From: kafka.StartLatest}
	if begin {
		from.From = kafka.StartEarliest
	}
	connecting, cancel := context.WithTimeoutCause(ctx, config.Kafka.DialTimeout, errNoAnswer)
	tail, err := kafka.NewTail(connecting, settings, from)
	err = plainly(connecting, err)
	cancel()
	if err != nil {
		return missingTopic(physical, err)
	}
	defer tail.Close()
	c.notef("reading %s", physical)
	printed := 0
	err = tail.Run(ctx, func(r topics.Record) error {
		if err := c.printRecord(r); err != nil {
			return err
		}
		if printed++; printed == limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// record is a record as JSON shows it: as the event that it is, or raw.
type record struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Key       string        `json:"key"`
	Timestamp time.Time     `json:"timestamp"`
	Event     *client.Event `json:"event,omitempty"`
	// Value is the value of a record that is no event; base64 when it is no text.
	Value  string `json:"value,omitempty"`
	Base64 []byte `json:"value_base64,omitempty"`
}

func newRecord(r topics.Record) record {
	shown := record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Timestamp: r.Timestamp}
	env, err := topics.DecodeRecord(r)
	if err == nil && json.Valid(env.Data) {
		shown.Event = &client.Event{
			ID: env.ID, Source: env.Source, Type: env.Type, Subject: env.Subject,
			Time: env.Time, Sequence: env.Sequence, Data: env.Data,
		}
		return shown
	}
	if utf8.Valid(r.Value) {
		shown.Value = string(r.Value)
	} else {
		shown.Base64 = r.Value
	}
	return shown
}

func (c *cli) printRecord(r topics.Record) error {
	shown := newRecord(r)
	switch c.output {
	case "json":
		return json.NewEncoder(c.out).Encode(shown)
	case "yaml":
		if _, err := fmt.Fprintln(c.out, "---"); err != nil {
			return err
		}
		return c.document(c.out, shown)
	}
	place := strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
	kind, detail := "(no event)", shorten(string(r.Value), c.output == "wide")
	if shown.Event != nil {
		kind, detail = shortType(shown.Event.Type), eventDetail(*shown.Event)
	}
	_, err := fmt.Fprintf(c.out, "%s  %-8s  %-36s  %-16s  %s\n",
		r.Timestamp.Local().Format("15:04:05.000"), place, oneLine(string(r.Key)), kind, oneLine(detail))
	return err
}

// missingTopic tells a topic that does not exist from other faults.
func missingTopic(name string, err error) error {
	if strings.Contains(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION") {
		return &notFoundError{fmt.Sprintf("there is no topic %s: `millrace topics list` shows those of the pipeline", name)}
	}
	return err
}
