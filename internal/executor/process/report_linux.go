package process

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/executor"
)

const (
	// reportVariable names the pipe that a program writes its reports to.
	reportVariable = "MILLRACE_REPORT"
	// checkpointVariable names the file that holds the checkpoint of the attempt
	// before; it is not set when there is none.
	checkpointVariable = "MILLRACE_CHECKPOINT"

	// maxReportBytes is the longest report: a checkpoint in base64, or as a text in
	// which much has to be escaped.
	maxReportBytes = 4 * executor.MaxCheckpointBytes
)

// programReport is one line of what a program tells of itself.
type programReport struct {
	// Progress is a fraction from 0 to 1. Done and Total say the same in numbers.
	Progress *float64 `json:"progress"`
	Done     *float64 `json:"done"`
	Total    *float64 `json:"total"`
	Message  *string  `json:"message"`
	// Checkpoint is a text, CheckpointBase64 is anything else.
	Checkpoint       *string `json:"checkpoint"`
	CheckpointBase64 *string `json:"checkpoint_base64"`
}

// reports is the pipe between a program, with its children, and the worker. It has
// a name instead of an inherited descriptor, so that each process of the attempt can
// open it, however its parents treat descriptors.
type reports struct {
	path string
	in   *os.File
	// hold is a writing end of the worker's own: without it the pipe would end when
	// the first program to write closes it.
	hold     *os.File
	reporter executor.Reporter
	read     chan struct{}
	// fault is the first report that could not be read; valid after close.
	fault error
}

// openReports makes the pipe beside the working directory and begins to read it.
func openReports(dir string, reporter executor.Reporter) (*reports, error) {
	r := &reports{path: reportPath(dir), reporter: reporter, read: make(chan struct{})}
	if err := unix.Mkfifo(r.path, 0o600); err != nil {
		return nil, fmt.Errorf("create pipe for reports: %w", err)
	}
	var err error
	if r.in, err = os.OpenFile(r.path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		r.hold, err = os.OpenFile(r.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		_ = r.in.Close()
		return nil, fmt.Errorf("open pipe for reports: %w", err)
	}
	go r.listen()
	return r, nil
}

// close takes in what is left, when nothing of the attempt runs any more, and
// returns the first fault. Like output, it does not wait for a stranger who holds
// the pipe open.
func (r *reports) close() error {
	_ = r.hold.Close()
	_ = r.in.SetReadDeadline(time.Now().Add(outputOverdue))
	<-r.read
	_ = r.in.Close()
	return r.fault
}

// listen reads to the end of the pipe. It goes on after a fault, because a program
// that writes reports must not block.
func (r *reports) listen() {
	defer close(r.read)
	in := bufio.NewReader(r.in)
	for {
		line, err := readReport(in)
		if err == nil || errors.Is(err, errReportTooLong) || len(line) > 0 {
			r.note(r.take(line, err))
		}
		if err != nil && !errors.Is(err, errReportTooLong) {
			return
		}
	}
}

func (r *reports) note(err error) {
	if r.fault == nil {
		r.fault = err
	}
}

var errReportTooLong = fmt.Errorf("longer than %d bytes", maxReportBytes)

// readReport reads a line. One that is too long is skipped.
func readReport(in *bufio.Reader) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxReportBytes; !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case tooLong && err == nil:
			return nil, errReportTooLong
		default:
			return line, err
		}
	}
}

// take passes a line on. What it says applies as a whole or not at all.
func (r *reports) take(line []byte, err error) error {
	if errors.Is(err, errReportTooLong) {
		return err
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var report programReport
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&report); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value in a line")
	}
	progress, err := report.progress()
	if err != nil {
		return err
	}
	checkpoint, err := report.checkpoint()
	if err != nil {
		return err
	}
	if checkpoint != nil {
		if err := r.reporter.Checkpoint(checkpoint); err != nil {
			return err
		}
	}
	if progress != nil {
		r.reporter.Progress(*progress)
	}
	return nil
}

func (p programReport) progress() (*executor.Progress, error) {
	var done, total float64
	var message string
	switch {
	case p.Progress != nil && (p.Done != nil || p.Total != nil):
		return nil, errors.New("progress excludes done and total")
	case p.Progress == nil && p.Done == nil && p.Total == nil && p.Message == nil:
		return nil, nil //nolint:nilnil // a report of a checkpoint alone
	case p.Progress != nil:
		done, total = *p.Progress, 1
	case p.Done != nil:
		done = *p.Done
	}
	if p.Total != nil {
		total = *p.Total
	}
	if p.Message != nil {
		message = *p.Message
	}
	progress, err := executor.NewProgress(done, total, message)
	return &progress, err
}

func (p programReport) checkpoint() ([]byte, error) {
	switch {
	case p.Checkpoint != nil && p.CheckpointBase64 != nil:
		return nil, errors.New("checkpoint excludes checkpoint_base64")
	case p.Checkpoint != nil:
		return []byte(*p.Checkpoint), nil
	case p.CheckpointBase64 != nil:
		data, err := base64.StdEncoding.DecodeString(*p.CheckpointBase64)
		if err != nil {
			return nil, fmt.Errorf("checkpoint_base64: %w", err)
		}
		return data, nil
	}
	return nil, nil
}

// writeCheckpoint leaves the checkpoint of the attempt before beside the working
// directory and returns its path, or nothing if there is none.
func writeCheckpoint(dir string, data []byte) (string, error) {
	if data == nil {
		return "", nil
	}
	path := checkpointPath(dir)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("write checkpoint: %w", err)
	}
	return path, nil
}
