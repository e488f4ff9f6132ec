package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/internal/rawjson"
)

// enterForEach begins a FOREACH: its first turns. One over nothing goes on at once.
func (r *run) enterForEach(step *planStep, open OpenStep) {
	items, failure := r.itemsOf(step)
	if failure != nil {
		r.fail(step, open, failure)
		return
	}
	open.Turns = &Turns{Items: items, Results: make([]json.RawMessage, len(items))}
	if len(items) == 0 {
		r.finishForEach(step, open, 0)
		return
	}
	r.beginTurns(step, r.stay(step, open))
}

// itemsOf evaluates the list of a FOREACH.
func (r *run) itemsOf(step *planStep) ([]json.RawMessage, *Failure) {
	raw, err := r.evalJSON(step.items, nil)
	if err != nil {
		return nil, expressionFailed(step, err)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' {
		return nil, &Failure{Code: CodeItemsNotAList, StepID: step.ID, Message: clean(fmt.Sprintf("%q is no list", step.Items))}
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, expressionFailed(step, err)
	}
	if len(items) > r.limits.Items {
		return nil, &Failure{Code: CodeTooManyItems, StepID: step.ID,
			Message: fmt.Sprintf("the list has %d elements, the limit is %d", len(items), r.limits.Items)}
	}
	return items, nil
}

// inputsAtOnce is how many times the limit of the variables the inputs of the turns that
// are open may take together: each turn has the variables, as a rule with the whole list.
const inputsAtOnce = 4

// beginTurns begins as many turns as may be open at once, and at least one.
func (r *run) beginTurns(step *planStep, open *OpenStep) {
	turns, size := open.Turns, 0
	for turns.Next < len(turns.Items) && (step.MaxParallel == 0 || len(open.Activities) < step.MaxParallel) {
		if len(open.Activities)*size > inputsAtOnce*r.limits.Variables {
			return
		}
		activity, failure := r.describe(step, *open, OpenActivity{Turn: turns.Next})
		if failure != nil {
			r.fail(step, *open, failure)
			return
		}
		turns.Next++
		size = len(activity.Input)
		r.dispatch(step, open, activity)
	}
}

// finishTurn takes the result of a turn.
func (r *run) finishTurn(step *planStep, open *OpenStep, ended OpenActivity, result json.RawMessage) {
	turns := open.Turns
	turns.Items[ended.Turn], turns.Results[ended.Turn] = nil, result
	turns.Done++
	if turns.Done == len(turns.Items) {
		r.finishForEach(step, *open, ended.N)
		return
	}
	r.beginTurns(step, open)
}

// finishForEach ends a FOREACH with the results of its turns, the last of which was the
// activity.
func (r *run) finishForEach(step *planStep, open OpenStep, activity int) {
	results := list(open.Turns.Results)
	if step.OutputVariable != "" {
		merged, err := r.fitting(single(step.OutputVariable, results))
		if err != nil {
			r.fail(step, open, unusable(step, err))
			return
		}
		r.setVariables(merged)
	}
	r.complete(step, open, activity, results)
}

// turnFits says whether the results of a FOREACH stay within the limit with another one.
func (r *run) turnFits(step *planStep, open OpenStep, result json.RawMessage) error {
	results := len(result)
	for _, earlier := range open.Turns.Results {
		results += len(earlier) + 1
	}
	size := results
	if step.OutputVariable != "" {
		size += len(r.state.Variables)
	}
	if size > r.limits.Variables {
		return r.tooLarge(size)
	}
	if step.compensation != nil {
		return r.undoFits(results)
	}
	return nil
}

// turnVariables are what a turn sees beside the variables: its item and its number.
func turnVariables(step *planStep, item json.RawMessage, turn int) (json.RawMessage, map[string]any) {
	number := json.RawMessage(strconv.Itoa(turn))
	var w objectWriter
	w.add(rawjson.Quote(nil, step.Item), item)
	w.add(rawjson.Quote(nil, step.Index), number)
	return w.end(), map[string]any{step.Item: item, step.Index: number}
}
