package worker

import (
	"context"
	"math"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// surveyors are the executors whose room is not this worker's.
func (w *Worker) surveyors() []executor.Surveyor {
	var list []executor.Surveyor
	for _, name := range w.executorNames() {
		if x, surveys := w.executors[name].(executor.Surveyor); surveys {
			list = append(list, x)
		}
	}
	return list
}

// pooled reports whether all that the worker offers runs elsewhere.
func (w *Worker) pooled() bool { return len(w.executors) > 0 && len(w.surveyors()) == len(w.executors) }

// total returns what the worker has. One that runs nothing itself has as many graphics
// processors as there are elsewhere, unless it was given a number.
func (w *Worker) total() room {
	r := w.cfg.total()
	if w.pooled() && r.gpus == 0 {
		r.gpus = math.MaxInt32
	}
	return r
}

// pools are the rooms of the executors as far as they are known.
func (w *Worker) pools() []store.Pool {
	var list []store.Pool
	for _, x := range w.surveyors() {
		p := store.Pool{Executor: x.Name(), Name: x.Pool(), Room: map[string]executor.Capacity{}}
		for _, class := range w.cfg.Classes {
			if c, known := x.Capacity(class); known {
				p.Room[class] = c
			}
		}
		list = append(list, p)
	}
	return list
}

// watchSurveys has the worker announce itself anew whenever there is another amount of room
// somewhere.
func (w *Worker) watchSurveys(ctx context.Context, x executor.Surveyor) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, more := <-x.Surveyed():
			if !more {
				return
			}
		}
		select {
		case w.surveyed <- struct{}{}:
		default:
		}
	}
}
