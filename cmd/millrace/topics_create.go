package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/kafka"
)

func (c *cli) topicsCreateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "create",
		Short: "Create the topics of the pipeline that do not exist",
		Long: `Create the topics of the pipeline that do not exist, with the names, partitions and
retention of the configuration. Topics that exist are compared and never changed; it
is safe to run again. "millrace up" and "millrace serve" do the same at their start:
use this where only an administrator may create topics.`,
		Example: `  millrace topics create --config millrace.yaml
  MILLRACE_KAFKA_BROKERS=kafka-1:9092 millrace topics create`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withAdmin(cmd.Context(), func(config configs.Config, admin *kafka.Admin) error {
				reports, err := admin.EnsureTopics(cmd.Context(), app.TopicConfigs(config))
				if errRender := render(c, c.out, reportListing(reports)); errRender != nil {
					return errRender
				}
				return err
			})
		},
	}
}

// topicReport is a report as JSON shows it.
type topicReport struct {
	Name        string   `json:"name"`
	Outcome     string   `json:"outcome"`
	Differences []string `json:"differences,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func reportListing(reports []kafka.TopicReport) listing[topicReport] {
	l := listing[topicReport]{
		name: func(r topicReport) string { return r.Name },
		columns: []column[topicReport]{
			{title: "TOPIC", cell: func(r topicReport) string { return r.Name }},
			{title: "OUTCOME", cell: func(r topicReport) string { return r.Outcome }, paint: outcomeColour},
			{title: "DETAIL", cell: func(r topicReport) string { return cmp.Or(r.Error, strings.Join(r.Differences, "; "), "-") }},
		},
	}
	for _, r := range reports {
		item := topicReport{Name: r.Name, Outcome: string(r.Outcome), Differences: r.Differences}
		if r.Err != nil {
			item.Error = r.Err.Error()
		}
		l.items = append(l.items, item)
	}
	return l
}

func outcomeColour(r topicReport) int {
	switch kafka.TopicOutcome(r.Outcome) {
	case kafka.TopicCreated:
		return green
	case kafka.TopicDiffers:
		return yellow
	case kafka.TopicFailed:
		return red
	default:
		return plain
	}
}

// retentionText shows days as days.
func retentionText(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return cmp.Or(text, "-")
	}
	return span(d)
}

func topicListing(list []client.Topic) listing[client.Topic] {
	return listing[client.Topic]{
		items: list,
		name:  func(t client.Topic) string { return t.Name },
		empty: "no topics",
		columns: []column[client.Topic]{
			{title: "TOPIC", cell: func(t client.Topic) string { return t.Name }},
			{title: "PARTITIONS", cell: func(t client.Topic) string { return fmt.Sprint(t.Partitions) }},
			{title: "RETENTION", cell: func(t client.Topic) string { return retentionText(t.Retention) }},
			{title: "KEY", cell: func(t client.Topic) string { return t.Key }},
			{title: "PURPOSE", cell: func(t client.Topic) string { return t.Purpose }},
		},
	}
}
