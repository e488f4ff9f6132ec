package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Definition is a version of a definition of a workflow, without its steps.
type Definition struct {
	ID          string    `json:"id"`
	Version     int       `json:"version"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	UploadedAt  time.Time `json:"uploadedAt"`
	UploadedBy  string    `json:"uploadedBy,omitempty"`
	Kind        string    `json:"kind,omitempty"`
}

// DefinitionFault is something that is wrong with a definition; Warning means that it can be
// used nevertheless.
type DefinitionFault struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

// UploadedDefinition is a definition that a server has.
type UploadedDefinition struct {
	Definition
	Warnings []DefinitionFault `json:"warnings,omitempty"`
	// Unchanged is true when the server had it already.
	Unchanged bool `json:"-"`
}

// PutDefinition uploads a definition, which is sent as it is written.
func (c *Client) PutDefinition(ctx context.Context, text []byte) (UploadedDefinition, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	var out UploadedDefinition
	resp, err := c.open(ctx, call{method: http.MethodPost, path: []string{"definitions"}, body: written(text)})
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return out, c.unreachable(ctx, err)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("decode the answer of %s: %w: is this the API of Millrace?", c.URL(), err)
	}
	out.Unchanged = resp.Header.Get("Definition-Unchanged") == "true"
	return out, nil
}

// DefinitionText returns a definition as it was uploaded, with its version; version 0 is the
// latest.
func (c *Client) DefinitionText(ctx context.Context, id string, version int) (json.RawMessage, error) {
	path := []string{"definitions", id}
	if version > 0 {
		path = append(path, "versions", strconv.Itoa(version))
	}
	var text json.RawMessage
	err := c.do(ctx, call{method: http.MethodGet, path: path}, &text)
	return text, err
}

// Definitions returns the latest version of each definition whose id or name contains a
// keyword, by id, and asks for each page as it is needed. It ends with the first error.
func (c *Client) Definitions(ctx context.Context, keyword string, size int) iter.Seq2[Definition, error] {
	q := url.Values{}
	if keyword != "" {
		q.Set("keyword", keyword)
	}
	return c.definitionPages(ctx, []string{"definitions"}, q, size)
}

// DefinitionVersions returns the versions of a definition, the latest first. See Definitions.
func (c *Client) DefinitionVersions(ctx context.Context, id string, size int) iter.Seq2[Definition, error] {
	return c.definitionPages(ctx, []string{"definitions", id, "versions"}, url.Values{}, size)
}

// maxDefinitions is how many definitions a page may have.
const maxDefinitions = 200

func (c *Client) definitionPages(ctx context.Context, path []string, q url.Values, size int) iter.Seq2[Definition, error] {
	size = min(size, maxDefinitions)
	q.Set("pageSize", strconv.Itoa(size))
	return func(yield func(Definition, error) bool) {
		for number, seen := 0, 0; ; number++ {
			q.Set("page", strconv.Itoa(number))
			var page struct {
				Items []Definition `json:"items"`
				Total int          `json:"total"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: path, query: q}, &page); err != nil {
				yield(Definition{}, err)
				return
			}
			for _, d := range page.Items {
				if !yield(d, nil) {
					return
				}
			}
			if seen += len(page.Items); len(page.Items) == 0 || seen >= page.Total {
				return
			}
		}
	}
}
