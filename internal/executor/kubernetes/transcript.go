package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// transcript is how far the log of a container has been read. The log is asked for with
// timestamps, which stand before every line and are taken off here; what is left goes on
// byte for byte.
//
// # Positions
//
// The kubelet knows no offsets: a log is read from its beginning, or from a second on. So
// a position is a line that is known by its timestamp (the anchor), and how many bytes of
// content have been passed on since. The anchor is the first line of a second, so that it
// moves once a second at most. Lines of the two output streams may lie in the log in
// another order than that of their timestamps, by less than a second; since no line before
// the anchor is of its second or a later one, and the log is asked for from one second
// earlier, reading again meets the anchor and everything behind it.
//
// What a line has at its end can be written much later than its beginning, and the log may
// then start in the middle of such a line, without a timestamp. That is before the anchor,
// and skipped.
//
// # Loss
//
// The kubelet rotates logs, and serves the newest file only. When the anchor is not there
// any more, what is newer than the last line that was read is passed on, and the loss is
// counted in gaps.
type transcript struct {
	out io.Writer
	// anchor is the timestamp of the anchor, at the same as a time. There is none before
	// the first line.
	anchor string
	at     time.Time
	// passed is how many bytes of content have been passed on from the anchor on.
	passed int64
	// last is the latest timestamp of all lines that were begun.
	last time.Time
	// gaps is how often something was lost.
	gaps int
}

// since is from when on the log has to be asked for; nil: from its beginning.
func (t *transcript) since() *time.Time {
	if t.anchor == "" {
		return nil
	}
	at := t.at.Truncate(time.Second).Add(-time.Second)
	return &at
}

// read passes on what a reading of the log brings that is new, to the end of it. It
// returns how much that was.
func (t *transcript) read(log io.Reader) (passed int64, err error) {
	r := reading{transcript: t, in: bufio.NewReaderSize(log, 32<<10)}
	if t.anchor != "" {
		r.where, r.skip = searching, t.passed
	}
	for err == nil {
		err = r.line()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r.news, err
}

// where a reading stands with respect to the anchor.
type where int

const (
	behind    where = iota // the anchor was met, or there is none
	searching              // it was not met yet
	missed                 // it is not there any more
)

// reading is one pass over a log from transcript.since on.
type reading struct {
	*transcript
	in    *bufio.Reader
	where where
	// skip is how many bytes were passed on by an earlier reading.
	skip int64
	news int64
}

// line takes one line, or what there is of it.
func (r *reading) line() error {
	stamp, at, err := r.stamp()
	if err != nil {
		return err
	}
	if stamp == "" {
		// The end of a line before the anchor, or the kubelet's own words for why there
		// is no log.
		return r.rest(false)
	}
	r.meet(stamp, at)
	if r.where != behind {
		return r.rest(false)
	}
	if r.skip == 0 {
		r.begin(stamp, at)
	}
	return r.rest(true)
}

// meet looks whether a line is the anchor, or what comes after it if that is lost.
func (r *reading) meet(stamp string, at time.Time) {
	if r.where == searching {
		switch {
		case stamp == r.anchor:
			r.where = behind
		case at.After(r.at):
			r.where = missed
			r.gaps++
		}
	}
	if r.where == missed && at.After(r.last) {
		r.where, r.skip, r.anchor = behind, 0, ""
	}
}

// begin notes that a new line begins.
func (r *reading) begin(stamp string, at time.Time) {
	if r.anchor == "" || at.Unix() > r.at.Unix() {
		r.anchor, r.at, r.passed = stamp, at, 0
	}
	if at.After(r.last) {
		r.last = at
	}
}

// longestTimestamp is a little more than the longest that there is.
const longestTimestamp = 40

// stamp takes the timestamp that a line begins with, and the space behind it. It is empty
// where there is none; some of the line is taken then.
func (r *reading) stamp() (string, time.Time, error) {
	head := make([]byte, 0, longestTimestamp)
	for len(head) < longestTimestamp {
		c, err := r.in.ReadByte()
		if err != nil {
			return "", time.Time{}, err
		}
		if c == '\n' {
			return "", time.Time{}, r.in.UnreadByte()
		}
		if c == ' ' {
			break
		}
		head = append(head, c)
	}
	at, err := time.Parse(time.RFC3339Nano, string(head))
	if err != nil {
		return "", time.Time{}, nil //nolint:nilerr // it is no timestamp, which is no fault
	}
	return string(head), at, nil
}

// rest takes what follows of a line, and passes on what of it is new if that is wanted. It
// does not wait for the end of a line before it passes on the beginning.
func (r *reading) rest(wanted bool) error {
	for {
		if _, err := r.in.Peek(1); err != nil {
			return err
		}
		piece, _ := r.in.Peek(r.in.Buffered())
		end := bytes.IndexByte(piece, '\n')
		if end >= 0 {
			piece = piece[:end+1]
		}
		if wanted {
			if err := r.pass(piece); err != nil {
				return err
			}
		}
		if _, err := r.in.Discard(len(piece)); err != nil || end >= 0 {
			return err
		}
	}
}

func (r *reading) pass(piece []byte) error {
	known := min(r.skip, int64(len(piece)))
	r.skip -= known
	piece = piece[known:]
	if len(piece) == 0 {
		return nil
	}
	r.passed += int64(len(piece))
	r.news += int64(len(piece))
	_, err := r.out.Write(piece)
	return err
}
