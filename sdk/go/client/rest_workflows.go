package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

func (c *restClient) UploadDefinition(ctx context.Context, document []byte) (DefinitionSummary, error) {
	var out DefinitionSummary
	err := c.call(ctx, "upload definition", http.MethodPost, "/v1/definitions", json.RawMessage(document), &out)
	return out, err
}

func (c *restClient) GetDefinition(ctx context.Context, id string, version int) (Definition, error) {
	path := "/v1/definitions/" + url.PathEscape(id)
	if version > 0 {
		path += "/versions/" + strconv.Itoa(version)
	}
	var document json.RawMessage
	if err := c.call(ctx, "get definition", http.MethodGet, path, nil, &document); err != nil {
		return Definition{}, err
	}
	d := Definition{Document: document}
	if err := json.Unmarshal(document, &d.DefinitionSummary); err != nil {
		return Definition{}, &Error{Op: "get definition", Kind: ErrUnavailable, Cause: err}
	}
	return d, nil
}

func (c *restClient) ListDefinitions(ctx context.Context, req ListDefinitionsRequest) (DefinitionPage, error) {
	q := url.Values{}
	put(q, "keyword", req.Keyword)
	page(q, req.Page, req.PageSize)
	var out DefinitionPage
	err := c.call(ctx, "list definitions", http.MethodGet, withQuery("/v1/definitions", q), nil, &out)
	return out, err
}

func (c *restClient) StartInstance(ctx context.Context, req StartInstanceRequest) (Instance, error) {
	vars, err := object(req.Variables)
	if err != nil {
		return Instance{}, err
	}
	body := struct {
		DefinitionID      string          `json:"definitionId"`
		DefinitionVersion int             `json:"definitionVersion,omitempty"`
		Variables         json.RawMessage `json:"variables,omitempty"`
		BusinessKey       string          `json:"businessKey,omitempty"`
		ID                string          `json:"id,omitempty"`
	}{req.DefinitionID, req.DefinitionVersion, vars, req.BusinessKey, req.ID}
	var out Instance
	err = c.call(ctx, "start instance", http.MethodPost, "/v1/instances", body, &out)
	return out, err
}

func (c *restClient) GetInstance(ctx context.Context, id string) (Instance, error) {
	var out Instance
	err := c.call(ctx, "get instance", http.MethodGet, instancePath(id, ""), nil, &out)
	return out, err
}

func (c *restClient) GetHistory(ctx context.Context, id string) ([]StepExecution, error) {
	var out struct {
		Items []StepExecution `json:"items"`
	}
	err := c.call(ctx, "get history", http.MethodGet, instancePath(id, "/history"), nil, &out)
	return out.Items, err
}

func (c *restClient) ListInstances(ctx context.Context, req ListInstancesRequest) (InstancePage, error) {
	q := url.Values{}
	put(q, "definitionId", req.DefinitionID)
	put(q, "status", string(req.Status))
	put(q, "businessKey", req.BusinessKey)
	page(q, req.Page, req.PageSize)
	var out InstancePage
	err := c.call(ctx, "list instances", http.MethodGet, withQuery("/v1/instances", q), nil, &out)
	return out, err
}

func (c *restClient) CancelInstance(ctx context.Context, id, reason string) (Instance, error) {
	var out Instance
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	err := c.call(ctx, "cancel instance", http.MethodPost, instancePath(id, "/cancel"), body, &out)
	return out, err
}

func (c *restClient) SignalWait(ctx context.Context, instanceID, waitStepID string, variables any) error {
	vars, err := object(variables)
	if err != nil {
		return err
	}
	if vars == nil {
		vars = json.RawMessage("{}")
	}
	return c.call(ctx, "signal wait", http.MethodPost, instancePath(instanceID, "/signals/"+url.PathEscape(waitStepID)), vars, nil)
}

func (c *restClient) CompleteUserTask(ctx context.Context, req CompleteUserTaskRequest) error {
	vars, err := object(req.Variables)
	if err != nil {
		return err
	}
	body := struct {
		CompletedBy string          `json:"completedBy,omitempty"`
		Variables   json.RawMessage `json:"variables,omitempty"`
	}{req.CompletedBy, vars}
	path := instancePath(req.InstanceID, "/user-tasks/"+url.PathEscape(req.StepID)+"/complete")
	return c.call(ctx, "complete user task", http.MethodPost, path, body, nil)
}

func instancePath(id, rest string) string { return "/v1/instances/" + url.PathEscape(id) + rest }

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

func put(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func page(q url.Values, number, size int) {
	if number > 0 {
		q.Set("page", strconv.Itoa(number))
	}
	if size > 0 {
		q.Set("pageSize", strconv.Itoa(size))
	}
}

// nameOf reads the name of a definition out of its document.
func nameOf(document []byte) string {
	var d struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(document, &d) // what the engine has taken can be read
	return d.Name
}
