package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
)

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return &pgconn.PgError{Code: code, Message: "m"} }
	for _, c := range []struct {
		name                       string
		err                        error
		infrastructure, constraint bool
	}{
		{"nil", nil, false, false},
		{"some error", errors.New("boom"), false, false},
		{"caller stopped", context.Canceled, false, false},
		{"deadline", context.DeadlineExceeded, true, false},
		{"server gone", io.ErrUnexpectedEOF, true, false},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, true, false},
		{"no such host", &net.DNSError{Name: "db"}, true, false},
		{"closed connection", net.ErrClosed, true, false},
		{"in doubt", fmt.Errorf("commit: %w", ErrInDoubt), true, false},
		{"transaction closed", pgx.ErrTxClosed, true, false},
		{"no rows", pgx.ErrNoRows, false, false},
		{"connection failure", pg("08006"), true, false},
		{"wrong password", pg("28P01"), true, false},
		{"serialization", pg("40001"), true, false},
		{"deadlock", pg("40P01"), true, false},
		{"constraint rolled back", pg("40002"), false, true},
		{"disk full", pg("53100"), true, false},
		{"too many connections", pg("53300"), true, false},
		{"statement timeout", pg("57014"), true, false},
		{"admin shutdown", pg("57P01"), true, false},
		{"starting up", pg("57P03"), true, false},
		{"io error", pg("58030"), true, false},
		{"corrupted", pg("XX001"), true, false},
		{"standby", pg("25006"), true, false},
		{"idle in transaction", pg("25P03"), true, false},
		{"aborted transaction", pg("25P02"), false, false},
		{"lock timeout", pg("55P03"), true, false},
		{"no rights", pg("42501"), true, false},
		{"no database", pg("3D000"), true, false},
		{"unknown table", pg("42P01"), false, false},
		{"index row too long", pg("54000"), false, false},
		{"unique", pg("23505"), false, true},
		{"not null", pg("23502"), false, true},
		{"zero byte", pg("22021"), false, true},
		{"check option", pg("44000"), false, true},
		{"not implemented", pg("0A000"), false, false},
		{"outdated plan", &pgconn.PgError{Code: "0A000", Message: "cached plan must not change result type"}, true, false},
		{"nonsense code", pg("5"), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.err
			if err != nil {
				err = fmt.Errorf("outer: %w", err)
			}
			assert.Equal(t, c.infrastructure, IsInfrastructure(err))
			assert.Equal(t, c.constraint, IsConstraint(err))
		})
	}
}

func TestUniqueViolation(t *testing.T) {
	t.Parallel()
	name, ok := UniqueViolation(fmt.Errorf("x: %w", &pgconn.PgError{Code: "23505", ConstraintName: "orders_pkey"}))
	assert.True(t, ok)
	assert.Equal(t, "orders_pkey", name)
	_, ok = UniqueViolation(&pgconn.PgError{Code: "23503"})
	assert.False(t, ok)
}
