package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sqlState returns the five-letter code that the server gave, or "".
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsInfrastructure reports whether err says that the database could not do the
// work now, whoever had asked for it: the same statement with the same data may
// succeed later, and other data would have failed as well. It is false for
// context.Canceled, since a caller that stops is no fault of the database.
func IsInfrastructure(err error) bool {
	if err == nil {
		return false
	}
	if code := sqlState(err); code != "" {
		return infrastructureCode(code) || stalePlan(err)
	}
	return brokenConnection(err)
}

// brokenConnection judges errors that the server did not send.
func brokenConnection(err error) bool {
	var netErr net.Error
	connect, isConnect := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case isConnect && connect != nil:
		// Nobody listens, the name does not resolve, TLS does not fit.
		return true
	case errors.Is(err, ErrInDoubt):
		return true
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err):
		// A statement that took longer than its caller gave it.
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		// The server process is gone: killed, crashed, restarted.
		return true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNREFUSED):
		return true
	case errors.As(err, &netErr):
		return true
	case errors.Is(err, pgx.ErrTxClosed):
		// The transaction ended because its connection broke before.
		return true
	default:
		// The connection was found closed before anything was sent on it.
		return pgconn.SafeToRetry(err)
	}
}

// infrastructureCode judges codes of the server by their class (the first two
// letters) and, where a class is mixed, one by one.
func infrastructureCode(code string) bool {
	switch code {
	case "40002":
		// Class 40, but a constraint is what rolled the transaction back.
		return false
	case "57014":
		// query_canceled: statement_timeout, or an administrator. Slow, not wrong.
		return true
	case "25006":
		// read_only_sql_transaction: connected to a standby after a failover.
		return true
	case "25P03", "25P04":
		// idle_in_transaction_session_timeout, transaction_timeout: we, or the
		// machine, were too slow for the limits of the server.
		return true
	case "55P03", "55006":
		// lock_not_available, object_in_use: somebody else holds it now.
		return true
	case "42501":
		// insufficient_privilege: rights were not granted, or were taken away. No
		// message can cause it and none can mend it.
		return true
	case "3D000":
		// invalid_catalog_name: the database is not there (yet).
		return true
	}
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08": // connection exception
		return true
	case "28": // invalid authorization: a password was rotated, pg_hba.conf changed
		return true
	case "40": // serialization failure, deadlock: rolled back for another's sake
		return true
	case "53": // insufficient resources: disk full, out of memory, too many connections
		return true
	case "57": // operator intervention: shutdown, crash, still starting, database dropped
		return true
	case "58": // system error: I/O error, a file is missing
		return true
	case "F0": // configuration file error, stale lock file
		return true
	case "XX":
		// Internal error, corrupted data or index. Blaming the message would file
		// away everything that touches a broken page; stalling shows it.
		return true
	}
	// Left out on purpose: 22 and 23 are the data's fault (IsConstraint). 54
	// (program limit exceeded: index row too long, statement too complex) depends on
	// the data, so that waiting cannot help. 42 (unknown table or column, syntax
	// error) is a handler that does not fit the schema: readiness keeps a binary
	// whose own migrations are missing from starting work at all.
	return false
}

// stalePlan reports a prepared statement that a migration has outdated. The
// driver forgets it upon this error, so the next attempt succeeds.
func stalePlan(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "0A000" && strings.Contains(pg.Message, "cached plan")
}

// IsConstraint reports whether the database refused the data as such: they break
// a constraint (class 23), or a value does not fit its type (class 22), such as a
// text with a zero byte. The same data will be refused again, unless what they
// refer to changes.
func IsConstraint(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "23") || strings.HasPrefix(code, "22") || code == "40002" || code == "44000"
}

// UniqueViolation returns the name of the unique constraint or index that err
// says was violated, and whether err says so.
func UniqueViolation(err error) (constraint string, ok bool) {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != "23505" {
		return "", false
	}
	return pg.ConstraintName, true
}
