package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fault is one thing that is wrong with a request.
type Fault struct {
	// Pointer is the JSON pointer of the value in the body.
	Pointer string `json:"pointer,omitempty"`
	// Parameter names a query parameter, path segment or header.
	Parameter string `json:"parameter,omitempty"`
	// Code is stable: "out_of_range".
	Code string `json:"code"`
	// Message says it in words.
	Message string `json:"message"`
	// Line and Column are where it is in what people write, from 1; Hint says what to do.
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// String gives the fault with its place.
func (f Fault) String() string {
	text := f.Message
	switch {
	case f.Line > 0:
		text = fmt.Sprintf("%d:%d: %s", f.Line, f.Column, text)
	case f.Pointer != "":
		text = f.Pointer + ": " + text
	case f.Parameter != "":
		text = f.Parameter + ": " + text
	}
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return text
}

// Problem is an answer of the server that is no success (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is stable: "execution_not_found". It is "http_<status>" when the answer
	// did not come from the API, but from a proxy before it.
	Code     string  `json:"code"`
	Instance string  `json:"instance,omitempty"`
	Errors   []Fault `json:"errors,omitempty"`
	// RetryAfter is how long the server asks to wait. Zero when it does not say.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error: what happened, and a line per fault.
func (p *Problem) Error() string {
	var out strings.Builder
	out.WriteString(p.headline())
	for _, f := range p.Errors {
		out.WriteString("\n  " + f.String())
	}
	return out.String()
}

// headline is the title and the detail, or the detail alone where it says all that
// the title does: what does not exist, or in what state it is.
func (p *Problem) headline() string {
	switch {
	case p.Detail == "" || p.Detail == p.Title:
		return p.Title
	case p.Status == http.StatusNotFound, p.Status == http.StatusConflict:
		return p.Detail
	default:
		return p.Title + ": " + p.Detail
	}
}

// NotFound says that what was asked for does not exist.
func (p *Problem) NotFound() bool { return p.Status == http.StatusNotFound }

// HasCode says whether err is a Problem with the code.
func HasCode(err error, code string) bool {
	var p *Problem
	return errors.As(err, &p) && p.Code == code
}

// UnreachableError says that no answer came.
type UnreachableError struct {
	URL string
	Err error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from Millrace at %s: %s", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// readProblem makes an error of an answer that is no success.
func readProblem(resp *http.Response) *Problem {
	// A body that is cut off or missing still leaves the status.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil || p.Code == "" {
		p = &Problem{Code: "http_" + strconv.Itoa(resp.StatusCode)}
		p.Title = "The server answered " + resp.Status
	}
	p.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	return p
}
