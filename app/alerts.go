package app

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/alerts"
	"github.com/millrace/millrace/internal/build"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
)

// newAlerts is what tells about troubles; nil where nobody is to be told.
func newAlerts(
	cfg configs.Config, pool *pgxpool.Pool, leases *lease.Manager, signals *postgres.Signals, log *slog.Logger, reg prometheus.Registerer,
) (*alerts.Watcher, error) {
	a := cfg.Alerts
	if a.Webhook.IsZero() {
		return nil, nil //nolint:nilnil // nobody is to be told
	}
	return alerts.New(alerts.Config{
		Pool: pool, Leases: leases, Signals: signals, URL: a.Webhook, Header: a.Header,
		Secret:     func() (secret.Secret, error) { return alertSecret(a) },
		StallAfter: a.StallAfter, DeadLetters: a.DeadLetters, AttentionAfter: a.AttentionAfter, Version: build.Version(), Registerer: reg, Log: log,
	})
}

// alertSecret reads the secret anew where it lies in a file.
func alertSecret(a configs.Alerts) (secret.Secret, error) {
	if a.SecretFile == "" {
		return a.Secret, nil
	}
	text, err := os.ReadFile(a.SecretFile)
	if err != nil {
		return secret.Secret{}, fmt.Errorf("read the secret of alerts: %w", err)
	}
	return secret.New(strings.TrimSpace(string(text))), nil
}
