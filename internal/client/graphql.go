package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Query is a GraphQL request.
type Query struct {
	// Text is the document.
	Text string `json:"query"`
	// Operation names which query of the document to run, where there are several.
	Operation string `json:"operationName,omitempty"`
	// Variables are the values of the query's variables, as JSON.
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
}

// QueryAnswer is what a query came to: data, errors, or both.
type QueryAnswer struct {
	// Data is nil when nothing was executed.
	Data   json.RawMessage `json:"data,omitempty"`
	Errors []QueryError    `json:"errors,omitempty"`
}

// QueryError is one error of a query.
type QueryError struct {
	Message string `json:"message"`
	// Path leads to the field that failed: names, and numbers of list elements. Empty
	// for what is wrong with the query itself.
	Path       []any `json:"path,omitempty"`
	Extensions struct {
		// Code is stable.
		Code string `json:"code"`
		// Limit is the limit that was broken, if one was.
		Limit string `json:"limit,omitempty"`
	} `json:"extensions"`
}

// Error implements error.
func (e QueryError) Error() string {
	if len(e.Path) == 0 {
		return e.Message
	}
	parts := make([]string, len(e.Path))
	for i, p := range e.Path {
		parts[i] = fmt.Sprint(p)
	}
	return strings.Join(parts, ".") + ": " + e.Message
}

// Query asks the read models. What is wrong with the query, or with some of its
// fields, is in the answer; the error says that there is none.
func (c *Client) Query(ctx context.Context, q Query) (QueryAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	var answer QueryAnswer
	req, err := c.request(ctx, call{method: http.MethodPost, root: true, path: []string{"graphql"}, body: q})
	if err != nil {
		return answer, err
	}
	resp, err := c.options.HTTP.Do(req)
	if err != nil {
		return answer, c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return answer, readProblem(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer, c.unreachable(ctx, err)
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Data == nil && len(answer.Errors) == 0 {
		return answer, fmt.Errorf("decode the answer of %s: it is no answer of GraphQL: is this the API of Millrace?", c.URL())
	}
	return answer, nil
}
