package app_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/function"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// A worker and consumers of users on the stock driver work together with the rest
// on our own.
func TestStockDriver(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t)
	without := cfg
	without.Roles = []configs.Role{
		configs.RoleAPI, configs.RoleCoordinator, configs.RoleProjections, configs.RoleRelay, configs.RoleMaintenance,
	}
	rest := start(t, without)

	seen, counted := make(chan string, 10), make(chan string, 10)
	stock := cfg
	stock.Roles = []configs.Role{configs.RoleWorker}
	stock.Kafka.Driver = configs.DriverSarama
	worker := start(t, stock,
		app.Function("double", func(_ context.Context, call function.Call) (any, error) {
			var n int
			err := json.Unmarshal(call.Args, &n)
			return 2 * n, err
		}),
		app.Consumer(func() pipeline.Consumer { return watcher("watcher", seen) }),
		app.Consumer(func() pipeline.Consumer {
			return pipeline.Consumer{
				Name: "counter", Topic: topics.ExecutionEvents,
				Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, e topics.ExecutionCompleted) error {
					pipeline.AfterCommit(tx, func() { counted <- e.ExecutionID })
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				}),
			}
		}),
	)
	assert.Contains(t, worker.log.String(), "driver=sarama")
	for n := range 3 {
		e, err := rest.api().Submit(t.Context(), client.Request{Executor: "function", Spec: json.RawMessage(`{"name":"double","args":21}`)})
		require.NoError(t, err)
		done := finished(t, rest.api(), e.ID)
		assert.Equal(t, client.Completed, done.State)
		assert.JSONEq(t, "42", string(done.Result.Value))
		assert.Equal(t, e.ID, receive(t, seen), "round %d", n)
		assert.Equal(t, e.ID, receive(t, counted), "round %d", n)
	}
	require.NoError(t, worker.stop())
	require.NoError(t, rest.stop())
	assert.Empty(t, seen)
	assert.Empty(t, counted)
}

func TestStockDriverRefusesBatches(t *testing.T) {
	t.Parallel()
	p, _ := launch(t, sharedConfig(t, "kafka.driver", "sarama"))
	err := p.wait()
	require.Error(t, err)
	for _, advice := range []string{"add consumer", "OnBatchTx", "kafka.driver to franz", "--roles"} {
		assert.ErrorContains(t, err, advice)
	}
}
