package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/results"
)

// newResults makes what keeps long results. A directory is read from when it is
// there, also when new results go to the database.
func newResults(cfg configs.Config, pool *pgxpool.Pool) (*results.Store, error) {
	database := results.NewPostgres(pool)
	dir := cmp.Or(cfg.Results.Dir, filepath.Join(cfg.DataDir, "results"))
	if cfg.Results.Store != configs.ResultsDirectory {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return results.New(pool, database), nil
		}
	}
	files, err := results.NewDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("results.dir: %w", err)
	}
	if cfg.Results.Store == configs.ResultsDirectory {
		return results.New(pool, files, database), nil
	}
	return results.New(pool, database, files), nil
}

func newResultsKeeper(cfg configs.Config, kept *results.Store, st *store.Store, log *slog.Logger) *results.Keeper {
	return results.NewKeeper(kept, st, results.KeeperConfig{Results: cfg.Retention.Results}, log)
}
