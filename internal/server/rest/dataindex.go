package rest

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/projections"
)

// Placeholder is a workflow instance of which only tasks are known.
type Placeholder struct {
	InstanceID  string    `json:"instance_id"`
	Since       time.Time `json:"since" doc:"When the first event of a task of it came"`
	HistoryFrom time.Time `json:"history_from" doc:"When the earliest of these events happened, by its own account"`
	Tasks       int64     `json:"tasks" doc:"How many tasks of it are known"`
}

// PlaceholderList is one page of placeholders.
type PlaceholderList struct {
	Placeholders  []Placeholder `json:"placeholders"`
	OlderThan     string        `json:"older_than" doc:"What counts as too long" example:"1h0m0s"`
	NextPageToken string        `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filter; missing on the last"`
}

type listPlaceholdersInput struct {
	OlderThan string `query:"older_than" maxLength:"32" doc:"For how long they have been there at least, such as 10m; data_index.placeholder_after by default" example:"10m"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same filter"`
}

type listPlaceholdersOutput struct{ Body PlaceholderList }

func (a *API) listPlaceholders(ctx context.Context, in *listPlaceholdersInput) (*listPlaceholdersOutput, error) {
	if auth.From(ctx).Tenant != "" {
		return nil, problem.Forbidden().With("a token of a tenant does not see the data index: its instances belong to no tenant")
	}
	olderThan := a.config.PlaceholderAfter
	if in.OlderThan != "" {
		d, err := time.ParseDuration(in.OlderThan)
		if err != nil || d < 0 {
			return nil, badParameter("older_than", "invalid", "want a duration that is not negative, such as 10m or 2h")
		}
		olderThan = d
	}
	page, err := a.deps.DataIndex.PlaceholderList(ctx, olderThan, projections.Page{Size: in.PageSize, Token: in.PageToken})
	if err != nil {
		return nil, err
	}
	out := &listPlaceholdersOutput{Body: PlaceholderList{
		Placeholders: make([]Placeholder, len(page.Placeholders)), OlderThan: olderThan.String(), NextPageToken: page.NextToken,
	}}
	for i, p := range page.Placeholders {
		out.Body.Placeholders[i] = Placeholder{InstanceID: p.InstanceID, Since: p.Since.UTC(), HistoryFrom: p.HistoryFrom.UTC(), Tasks: p.Tasks}
	}
	return out, nil
}

func listPlaceholdersDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-data-index-placeholders", Summary: "List workflow instances of which only tasks are known", Tags: []string{tagDataIndex},
		Description: "An event of a task that comes before any of its workflow makes a placeholder for the instance. One that " +
			"stays for long says that events of the workflow were lost or never sent. The oldest come first.",
		Errors: []int{400, 503},
	}
}
