package linear

import (
	"errors"
	"fmt"
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
	told := map[string]int{}
	var out strings.Builder
	fmt.Fprintf(&out, "no order explains the %d operations; an order of %d does, and then none of the others:\n", len(ops), len(longest))
	tell := func(mark string, op porcupine.Operation) {
		fmt.Fprintf(&out, "  %s [%d, %d] %s\n", mark, op.Call, op.Return, model.DescribeOperation(op.Input, op.Output))
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
	left := 0
	for _, op := range ops {
		if told[key(op)]--; told[key(op)] < 0 && left < 30 {
			left++
			tell("?", op)
		}
	}
	return errors.New(out.String())
}
