package kubernetes

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// logPauseMin is the first pause before a log that broke off is read on.
	logPauseMin = 50 * time.Millisecond
	// logSilence is how long a log that is followed may bring nothing after the program has
	// ended, before it is asked for anew.
	logSilence = time.Second
)

// follower reads the output of a pod: while the program runs as it comes, and after its end
// until there is no more. What a fault has interrupted is read on, with nothing lost and
// nothing doubled (transcript).
type follower struct {
	e   *Executor
	key key
	uid types.UID
	// stream is the one of the container's streams that is read; nil: both, as they come.
	stream *string
	log    transcript
	// count counts what has arrived, for whoever watches over it.
	count atomic.Int64
	// ended is closed when the program has ended.
	ended <-chan struct{}
	// hint is called when the log has ended, which may say something of the program.
	hint func()
	// incomplete is why the end of the output could not be had.
	incomplete error
}

// countTo returns a writer that counts what passes to out.
func (f *follower) countTo(out io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		f.count.Add(int64(len(p)))
		return out.Write(p)
	})
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// run reads until the output is complete or ctx ends. After the end of the program it goes
// on as long as something comes, and gives up when for patience nothing could be had.
func (f *follower) run(ctx context.Context, patience time.Duration) {
	f.follow(ctx)
	pause, since := logPauseMin, time.Now()
	for ctx.Err() == nil {
		n, err := f.read(ctx, false)
		switch {
		case err == nil && n == 0:
			return // a reading that began after the end of the program has brought nothing new
		case n > 0:
			pause, since = logPauseMin, time.Now()
			continue
		case final(err) || time.Since(since) > patience:
			f.incomplete = err
			return
		}
		f.e.metrics.logFaults.Inc()
		sleep(ctx, pause)
		pause = min(2*pause, f.e.cfg.RetryMax)
	}
}

// follow reads along until the program has ended and the log with it.
func (f *follower) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		f.watchSilence(ctx, cancel)
	}()
	defer func() { cancel(); <-watched }()
	pause := logPauseMin
	for ctx.Err() == nil {
		n, err := f.read(ctx, true)
		if f.hasEnded() {
			return
		}
		if err == nil {
			f.hint()
		} else if ctx.Err() == nil {
			f.e.metrics.logFaults.Inc()
		}
		if n > 0 {
			pause = logPauseMin
		}
		select {
		case <-ctx.Done():
		case <-f.ended:
		case <-time.After(pause):
		}
		pause = min(2*pause, f.e.cfg.RetryMax)
	}
}

// watchSilence gives up following once the program has ended and no more comes: a
// connection can be dead without saying so.
func (f *follower) watchSilence(ctx context.Context, giveUp context.CancelFunc) {
	select {
	case <-ctx.Done():
		return
	case <-f.ended:
	}
	tick := time.NewTicker(logSilence)
	defer tick.Stop()
	for before := int64(-1); ; {
		now := f.count.Load()
		if now == before {
			giveUp()
			return
		}
		before = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// final says whether there is nothing to be had of the log of a pod that has ended: the pod
// is gone, or its container has never run.
func final(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) }

func (f *follower) hasEnded() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// read asks for the log from where it is known, and reads to the end of the answer.
func (f *follower) read(ctx context.Context, follow bool) (int64, error) {
	o := &corev1.PodLogOptions{Container: WorkContainer, Follow: follow, Timestamps: true, Stream: f.stream}
	if since := f.log.since(); since != nil {
		o.SinceTime = &metav1.Time{Time: *since}
	}
	gaps := f.log.gaps
	stream, err := f.e.client.CoreV1().Pods(f.key.Namespace).GetLogs(f.key.Name, o).MaxRetries(0).Stream(ctx)
	if err != nil {
		return 0, err
	}
	n, err := f.log.read(stream)
	_ = stream.Close() // what was read is known
	if f.log.gaps > gaps {
		f.e.metrics.logGaps.Inc()
		f.e.log.WarnContext(ctx, "part of the output of a pod was rotated away before it was read",
			"namespace", f.key.Namespace, "pod", f.key.Name, "pod_uid", f.uid)
	}
	return n, err
}
