package linear

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdict asks porcupine, and tells what it could not explain.
func verdict(model porcupine.Model, ops []porcupine.Operation, within time.Duration) error {
	result, info := porcupine.CheckOperationsVerbose(model, ops, max(within, time.Millisecond))
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("the history of %d operations could not be checked in time", len(ops))
	case porcupine.Illegal:
	}
	// The longest explanation says how far it goes; what is left cannot follow.
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, explained := range part {
			if len(explained) > len(longest) {
				longest = explained
			}
		}
	}
	began := ops[0].Call
	for _, op := range ops {
		began = min(began, op.Call)
	}
	since := func(t int64) string {
		if t == Forever {
			return "-"
		}
		return time.Duration(t - began).Round(time.Microsecond).String()
	}
	told := map[string]int{}
	var out strings.Builder
	fmt.Fprintf(&out, "no order explains the %d operations; an order of %d does, and then none of the others:\n", len(ops), len(longest))
	tell := func(mark string, op porcupine.Operation) {
		fmt.Fprintf(&out, "  %s [%s, %s] %s\n", mark, since(op.Call), since(op.Return), model.DescribeOperation(op.Input, op.Output))
	}
	key := func(op porcupine.Operation) string {
		return fmt.Sprint(op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	for i, op := range longest {
		told[key(op)]++
		if i >= len(longest)-30 {
			tell(" ", op)
		}
	}
	if model.DescribeState != nil {
		state := model.Init()
		for _, op := range longest {
			_, state = model.Step(state, op.Input, op.Output)
		}
		fmt.Fprintf(&out, "  = %s\n", model.DescribeState(state))
	}
	left := 0
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range ops {
		if told[key(op)]--; told[key(op)] < 0 && left < 30 {
			left++
			tell("?", op)
		}
	}
	return errors.New(out.String())
}
