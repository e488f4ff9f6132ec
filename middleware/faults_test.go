package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/middleware"
)

// sqlError is an error with a code, as PostgreSQL drivers have them.
type sqlError string

func (e sqlError) Error() string    { return "sql error " + string(e) }
func (e sqlError) SQLState() string { return string(e) }

func TestClassify(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	ownOutage := errors.New("broker is away")
	classifier := middleware.Classifier{Infrastructure: []func(error) bool{
		func(err error) bool { return errors.Is(err, ownOutage) },
	}}
	for name, tc := range map[string]struct {
		err  error
		want middleware.Class
	}{
		"anything else is the handler's": {plain, middleware.HandlerFault},
		"permanent is the handler's":     {middleware.Permanent(plain), middleware.HandlerFault},
		"malformed is the message's":     {middleware.Malformed(plain), middleware.MessageFault},
		"bad records are the messages'":  {&middleware.RecordErrors{ByIndex: map[int]error{0: plain}}, middleware.MessageFault},
		"marked as infrastructure":       {middleware.Infrastructure(plain), middleware.InfrastructureFault},
		"a mark survives wrapping":       {fmt.Errorf("store: %w", middleware.Infrastructure(plain)), middleware.InfrastructureFault},
		"the outermost mark wins":        {middleware.Permanent(middleware.Infrastructure(plain)), middleware.HandlerFault},
		"a mark overrules a code":        {middleware.Permanent(sqlError("08006")), middleware.HandlerFault},
		"registered predicate":           {fmt.Errorf("publish: %w", ownOutage), middleware.InfrastructureFault},
		"fenced, even if marked":         {middleware.Malformed(middleware.ErrFenced), middleware.ShutdownFault},
		"the attempt's own limit":        {fmt.Errorf("call: %w", context.DeadlineExceeded), middleware.HandlerFault},
		"connection refused":             {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, middleware.InfrastructureFault},
		"connection cut":                 {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), middleware.InfrastructureFault},
		"resolver down":                  {&net.DNSError{IsTemporary: true}, middleware.InfrastructureFault},
		"no such host is often bad data": {&net.DNSError{IsNotFound: true}, middleware.HandlerFault},
		"not-null violation":             {sqlError("23502"), middleware.MessageFault},
		"value out of range":             {sqlError("22003"), middleware.MessageFault},
		"deferred constraint":            {sqlError("40002"), middleware.MessageFault},
		"deadlock":                       {sqlError("40P01"), middleware.InfrastructureFault},
		"server is shutting down":        {sqlError("57P01"), middleware.InfrastructureFault},
		"disk full":                      {sqlError("53100"), middleware.InfrastructureFault},
		"connection lost":                {sqlError("08006"), middleware.InfrastructureFault},
		"standby":                        {sqlError("25006"), middleware.InfrastructureFault},
		"table missing":                  {sqlError("42P01"), middleware.InfrastructureFault},
		"right missing":                  {sqlError("42501"), middleware.InfrastructureFault},
		"syntax error":                   {sqlError("42601"), middleware.HandlerFault},
		"index row too long":             {sqlError("54000"), middleware.HandlerFault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want.String(), classifier.Classify(t.Context(), tc.err).String())
		})
	}
}

func TestClassifyBlamesNobodyOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{
		errors.New("whatever"), sqlError("23505"), middleware.Malformed(io.EOF), middleware.Permanent(io.EOF), context.Canceled,
	} {
		assert.Equal(t, middleware.ShutdownFault, middleware.Classify(ctx, err), "%v", err)
	}
}

func TestMarksKeepNilNil(t *testing.T) {
	t.Parallel()
	assert.NoError(t, middleware.Permanent(nil))
	assert.NoError(t, middleware.Malformed(nil))
	assert.NoError(t, middleware.Infrastructure(nil))
	assert.NoError(t, middleware.RetryAfter(time.Second, nil))
}
