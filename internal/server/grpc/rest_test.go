package grpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/rest"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/topics"
)

// noDatabase is a database that cannot be reached.
type noDatabase struct{ pgx.BatchResults }

func (d noDatabase) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return d }

func (noDatabase) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, io.ErrUnexpectedEOF }

func (noDatabase) Close() error { return nil }

// noHistory is an event log without events.
type noHistory struct{}

func (noHistory) Events(context.Context, string, eventlog.Cursor, int) ([]eventlog.Entry, eventlog.Cursor, error) {
	return nil, eventlog.Cursor{}, nil
}

func (noHistory) Search(context.Context, eventlog.Filter, eventlog.Moment, int) ([]eventlog.Entry, eventlog.Moment, error) {
	return nil, eventlog.Moment{}, errors.ErrUnsupported
}

// errorTable is a REST interface of which only the table of errors, and the document, are
// of use.
func errorTable(t testing.TB, logger *slog.Logger) *rest.API {
	t.Helper()
	api, err := rest.New(rest.Deps{
		History: noHistory{}, Health: health.New(), Logger: logger, Queries: query.NewStore(noDatabase{}, query.Limits{}),
		Streams: sse.NewStreams(noHistory{}, sse.Config{}, sse.NewHub(topics.ExecutionEvents, nil, logger, nil)),
		GraphQL: graphql.New(graphql.Deps{Logger: logger}, graphql.Config{}),
	}, rest.Config{Version: "test"})
	require.NoError(t, err)
	return api
}
