package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
)

func (c *cli) topicsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topics",
		Aliases: []string{"topic"},
		Short:   "List, create and read the topics of the pipeline",
		Long: `List, create and read the topics of the pipeline. create and tail talk to Kafka with
the settings of the configuration, or with those of a running "millrace up".`,
		Example: `  millrace topics list
  millrace topics create
  millrace topics tail execution_events`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(c.topicsListCommand(), c.topicsCreateCommand(), c.topicsTailCommand())
	return cmd
}

// kafkaSettings loads the configuration for a command that talks to Kafka.
func (c *cli) kafkaSettings() (configs.Config, kafka.Config, error) {
	sources := c.sources()
	sources.Attach = true
	sources.Required = []string{"kafka.brokers"}
	config, err := sources.Load()
	// The client's own log would only repeat the errors that it returns.
	return config, app.KafkaConfig(config, slog.New(slog.DiscardHandler)), err
}

// withAdmin calls use with a connection to the brokers that has been tried.
func (c *cli) withAdmin(ctx context.Context, use func(configs.Config, *kafka.Admin) error) error {
	config, settings, err := c.kafkaSettings()
	if err != nil {
		return err
	}
	admin, err := kafka.NewAdmin(settings)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := c.ping(ctx, admin, config); err != nil {
		return err
	}
	return use(config, admin)
}

// ping tries the connection for as long as one attempt to connect may take.
func (c *cli) ping(ctx context.Context, admin *kafka.Admin, config configs.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, config.Kafka.DialTimeout, errNoAnswer)
	defer cancel()
	return plainly(ctx, admin.Ping(ctx))
}

func (c *cli) topicsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the topics of the pipeline",
		Long: `List the topics of the pipeline as the API knows them: what each is for, and how it
is made.`,
		Example: `  millrace topics list
  millrace topics list -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				list, err := api.Topics(ctx)
				if err != nil {
					return err
				}
				return render(c, w, topicListing(list))
			})
		},
	}
}
