package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/function"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// combinations are no role, each alone, each pair, and all.
func combinations() [][]configs.Role {
	all := configs.AllRoles()
	sets := [][]configs.Role{nil, all}
	for i, first := range all {
		sets = append(sets, []configs.Role{first})
		for _, second := range all[i+1:] {
			sets = append(sets, []configs.Role{first, second})
		}
	}
	return sets
}

func TestEveryCombinationOfRolesIsComplete(t *testing.T) {
	t.Parallel()
	sets := combinations()
	require.Len(t, sets, 2+8+28)
	for _, set := range sets {
		cfg := configs.Default()
		cfg.Roles, cfg.Kafka.Brokers = set, []string{"127.0.0.1:1"}
		o := newOptions([]Option{Consumer(newNothing)})
		assert.NoError(t, fx.ValidateApp(assembly(cfg, o, &connections{}, &addresses{})), "%v", set)
	}
}

func TestRolesThatDoWithoutKafkaAreComplete(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Roles = configs.BrokerlessRoles()
	require.True(t, cfg.Brokerless())
	require.NoError(t, fx.ValidateApp(assembly(cfg, newOptions(nil), &connections{}, &addresses{})))
}

func newNothing(*slog.Logger) (pipeline.Consumer, error) {
	return pipeline.Consumer{
		Name: "nothing", Topic: topics.ExecutionEvents,
		Handle: pipeline.On(func(context.Context, topics.ExecutionCompleted) error { return nil }),
	}, nil
}

func TestAConsumerThatCannotBeMadeIsFoundBeforeTheStart(t *testing.T) {
	t.Parallel()
	for name, constructor := range map[string]any{
		"missing type": func(*testing.B) pipeline.Consumer { return pipeline.Consumer{} },
		"no function":  42,
	} {
		o := newOptions([]Option{Consumer(constructor)})
		cfg := configs.Default()
		cfg.Kafka.Brokers = []string{"127.0.0.1:1"}
		assert.Error(t, fx.ValidateApp(assembly(cfg, o, &connections{}, &addresses{})), name)
	}
}

// attachedTo leaves everything to the pipeline that runs already.
func TestAttaching(t *testing.T) {
	t.Parallel()
	cfg := attachedTo(configs.Default(), newOptions(nil))
	assert.Empty(t, cfg.Roles)
	assert.Empty(t, cfg.Admin.Listen)

	work := func(context.Context, function.Call) (any, error) { return nil, errors.New("unused") }
	cfg = attachedTo(configs.Default(), newOptions([]Option{Function("work", work)}))
	assert.Equal(t, []configs.Role{configs.RoleWorker}, cfg.Roles)
	assert.Equal(t, []string{"function"}, cfg.Worker.Executors)
}

// Processes that start at once agree on one token, which only its owner can read.
func TestTheTokenIsMadeOnce(t *testing.T) {
	t.Parallel()
	cfg := configs.Config{DataDir: filepath.Join(t.TempDir(), "not", "there", "yet")}
	const processes = 16
	found := make([]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			token, err := apiToken(cfg)
			assert.NoError(t, err)
			found[i] = token.Reveal()
		})
	}
	wg.Wait()
	assert.Len(t, found[0], 64)
	assert.Len(t, slices.Compact(found), 1)
	info, err := os.Stat(configs.TokenFile(cfg.DataDir))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(cfg.DataDir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing but the token")
}

func TestAnEmptyTokenIsRefused(t *testing.T) {
	t.Parallel()
	cfg := configs.Config{DataDir: t.TempDir()}
	require.NoError(t, os.WriteFile(configs.TokenFile(cfg.DataDir), []byte("\n"), 0o600))
	_, err := apiToken(cfg)
	assert.ErrorContains(t, err, "delete it")
}
