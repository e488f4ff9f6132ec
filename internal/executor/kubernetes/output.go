package kubernetes

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
)

// output is what an attempt reads of its pod.
type output struct {
	e       *Executor
	key     key
	capture *capture.Capture
	hint    func()

	followers []*follower
	ended     chan struct{}
	once      sync.Once
	all       sync.WaitGroup
	stop      context.CancelFunc
	// read is closed when everything was.
	read chan struct{}
	// partly: nobody expects the end, since the pod was deleted while its program ran.
	partly bool
	// cut: the end is expected, and was not had in time.
	cut bool
}

func newOutput(e *Executor, k key, c *capture.Capture, hint func()) *output {
	return &output{e: e, key: k, capture: c, hint: hint, ended: make(chan struct{}), read: make(chan struct{})}
}

// begin begins to follow the output of a pod, once.
func (o *output) begin(uid types.UID) {
	if o.followers != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	add := func(stream *string, out io.Writer) {
		f := &follower{e: o.e, key: o.key, uid: uid, stream: stream, ended: o.ended, hint: o.hint}
		f.log.out = f.countTo(out)
		o.followers = append(o.followers, f)
	}
	if o.e.cfg.SplitStreams {
		add(new(corev1.LogStreamStdout), o.capture.Stdout())
		add(new(corev1.LogStreamStderr), o.capture.Stderr())
	} else {
		add(nil, o.capture.Stdout())
	}
	for _, f := range o.followers {
		o.all.Go(func() { f.run(ctx, o.e.cfg.Patience.Output) })
	}
	go func() {
		o.all.Wait()
		close(o.read)
	}()
}

// drain tells that the program has ended, and waits until all of its output was read, or
// ctx has ended.
func (o *output) drain(ctx context.Context, p *corev1.Pod) {
	if begun(p) {
		o.begin(p.UID)
	}
	o.once.Do(func() { close(o.ended) })
	if o.followers == nil {
		return
	}
	select {
	case <-o.read:
	case <-ctx.Done():
	}
}

// lastWords is how long the output of a pod that is gone may still come.
const lastWords = 2 * time.Second

// finish reads what is still on its way of a pod that is gone. whole says that its program had
// ended by itself before, so that what cannot be had of its output is missing.
func (o *output) finish(whole bool) {
	o.partly = !whole
	o.once.Do(func() { close(o.ended) })
	if o.followers == nil {
		return
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-o.read:
	case <-timer.C:
		o.cut = whole
	}
	o.abandon()
}

// abandon stops reading.
func (o *output) abandon() {
	if o.stop != nil {
		o.stop()
		<-o.read
	}
}

// complete says whether everything was read that there is to be had.
func (o *output) complete() bool {
	if o.followers == nil {
		return true
	}
	select {
	case <-o.read:
		return true
	default:
		return false
	}
}

// close ends the reading, and returns what there was. What could not be read is said where
// the reader of the output will look for it.
func (o *output) close() (stdout, stderr executor.StreamSummary) {
	o.abandon()
	for _, f := range o.followers {
		if (f.incomplete == nil || o.partly) && f.log.gaps == 0 && !o.cut {
			continue
		}
		why := "it was rotated away on its node before it was read"
		switch {
		case o.cut:
			why = "the pod was deleted before it was read"
		case f.incomplete != nil:
			why = f.incomplete.Error()
			o.e.metrics.logGaps.Inc()
			o.e.log.Warn("the end of the output of a pod could not be read",
				"namespace", o.key.Namespace, "pod", o.key.Name, "error", f.incomplete)
		}
		_, _ = fmt.Fprintf(o.capture.Stderr(), "\nmillrace: part of the output is missing: %s\n", why)
		break
	}
	stdout, stderr, _ = o.capture.Close()
	return stdout, stderr
}
