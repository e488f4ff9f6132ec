package configs

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	// Path is the setting, such as "worker.heartbeat"; empty when the fault is
	// not about one setting.
	Path string
	// Origin is where the value came from: "millrace.yaml:12", "MILLRACE_API_LISTEN",
	// "--api-listen", or empty for a default.
	Origin string
	// Message says what is wrong and what would be right. It never holds the
	// value of a secret.
	Message string
}

// String returns the fault as one line: origin, path, message.
func (f Fault) String() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{f.Origin, f.Path, f.Message} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// InvalidError lists everything that is wrong with a configuration.
type InvalidError struct{ Faults []Fault }

// Error implements error: one line per fault.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return fmt.Sprintf("configuration: %d faults:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// faults gathers what is wrong.
type faults []Fault

func (f *faults) add(origin, path, format string, args ...any) {
	*f = append(*f, Fault{Origin: origin, Path: path, Message: fmt.Sprintf(format, args...)})
}

// err returns an *InvalidError, or nil when there is no fault.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &InvalidError{Faults: f}
}

// faultsOf returns the faults in err, which is nil or an *InvalidError.
func faultsOf(err error) faults {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return invalid.Faults
	}
	return nil
}
