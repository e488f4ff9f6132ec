package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/deadletter"
)

type listRedrivesInput struct {
	State     []string `query:"state,explode" maxItems:"10" doc:"Any of these states; repeat it, or separate by commas"`
	PageSize  int      `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string   `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same states"`
}

type redriveInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the redrive" example:"01980000-0000-7000-8000-000000000000"`
}

type redriveLettersInput struct {
	ID        string `path:"id" maxLength:"64" doc:"The id of the redrive" example:"01980000-0000-7000-8000-000000000000"`
	Bad       bool   `query:"bad" doc:"Only letters that were refused or failed again"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same bad"`
}

type (
	redriveOutput        struct{ Body DeadLetterRedrive }
	listRedrivesOutput   struct{ Body DeadLetterRedriveList }
	redriveLettersOutput struct{ Body RedriveLetterList }
)

// listRedrives handles GET /v1/dead-letter-redrives.
func (a *API) listRedrives(ctx context.Context, in *listRedrivesInput) (*listRedrivesOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	var states []deadletter.JobState
	for _, list := range in.State {
		for text := range strings.SplitSeq(list, ",") {
			s := deadletter.JobState(strings.ToUpper(text))
			if !s.Valid() {
				return nil, badParameter("state", "invalid", "%q is not a state: use RUNNING, PAUSED, STOPPED, DONE or CANCELLED", clip(text))
			}
			states = append(states, s)
		}
	}
	list, err := a.deps.DeadLetters.Jobs(ctx, states, deadletter.Page{Size: in.PageSize, Token: in.PageToken})
	if err != nil {
		return nil, err
	}
	out := &listRedrivesOutput{Body: DeadLetterRedriveList{Redrives: make([]DeadLetterRedrive, len(list.Jobs)), NextPageToken: list.NextToken}}
	for i, j := range list.Jobs {
		out.Body.Redrives[i] = fromJob(j)
	}
	return out, nil
}

// getRedrive handles GET /v1/dead-letter-redrives/{id}.
func (a *API) getRedrive(ctx context.Context, in *redriveInput) (*redriveOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	j, err := a.deps.DeadLetters.Job(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &redriveOutput{Body: fromJob(j)}, nil
}

// listRedriveLetters handles GET /v1/dead-letter-redrives/{id}/letters.
func (a *API) listRedriveLetters(ctx context.Context, in *redriveLettersInput) (*redriveLettersOutput, error) {
	if err := seesLetters(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.DeadLetters.JobItems(ctx, in.ID, in.Bad, deadletter.Page{Size: in.PageSize, Token: in.PageToken})
	if err != nil {
		return nil, err
	}
	out := &redriveLettersOutput{Body: RedriveLetterList{Letters: make([]RedriveLetter, len(list.Items)), NextPageToken: list.NextToken}}
	for i, item := range list.Items {
		l := RedriveLetter{ID: item.LetterID.String(), At: item.At.UTC(), Redriven: item.Redriven, FailedAgain: item.FailedAgain, Problem: item.Problem}
		if item.Again != nil {
			l.FailedAs = item.Again.String()
		}
		out.Body.Letters[i] = l
	}
	return out, nil
}

// controlRedrive makes the handler of POST /v1/dead-letter-redrives/{id}/pause and
// the like.
func (a *API) controlRedrive(do func(d DeadLetters, ctx context.Context, id, actor, reason string) error) http.HandlerFunc {
	return letterAction(a, true, func(r *http.Request, in ControlRedriveRequest) (int, any, error) {
		if err := do(a.deps.DeadLetters, r.Context(), r.PathValue("id"), actor(r), in.Reason); err != nil {
			return 0, nil, err
		}
		j, err := a.deps.DeadLetters.Job(r.Context(), r.PathValue("id"))
		return http.StatusOK, fromJob(j), err
	})
}

// check implements letterBody.
func (in ControlRedriveRequest) check(fault reporter) { checkReasonText(fault, in.Reason) }
