package realkafka_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// tool runs one of Kafka's tools and returns what it printed.
func tool(t *testing.T, stdin, class string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, err := realkafka.Tool(ctx, os.Stderr, class, args...)
	require.NoError(t, err)
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", class, errs.String())
	return string(out)
}

func TestConsoleToolsCopyARecord(t *testing.T) {
	addrs := realkafka.Shared(t)
	cl := client(t, addrs)
	topic := strings.ToLower(t.Name())
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, topic)
	require.NoError(t, err)
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{
		Topic: topic, Key: []byte("key"), Value: []byte(`{"a": 1}`),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("a:b")}, {Key: "text", Value: []byte("with, commas")}},
	}).FirstErr())

	line := tool(t, "", realkafka.ConsoleConsumer, "--bootstrap-server", addrs[0], "--topic", topic, "--from-beginning",
		"--max-messages", "1", "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
		"--formatter-property", "headers.separator=~~")
	assert.Equal(t, "h:a:b~~text:with, commas\tkey\t{\"a\": 1}\n", line)
	tool(t, line, realkafka.ConsoleProducer, "--bootstrap-server", addrs[0], "--topic", topic,
		"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
		"--reader-property", "headers.separator=~~")
	assert.Equal(t, []string{`{"a": 1}`, `{"a": 1}`}, consume(t, addrs, topic, 2))
}
