package kubernetes

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type metrics struct {
	created, adopted, vanished, forced prometheus.Counter
	refused, stuck                     *prometheus.CounterVec
	calls                              *prometheus.HistogramVec
	callFaults                         *prometheus.CounterVec
	watchFaults                        *prometheus.CounterVec
	relists                            prometheus.Counter
	logFaults, logGaps                 prometheus.Counter
	recordFaults                       prometheus.Counter
	swept                              *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, known, pending func() float64) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "kubernetes", Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		o := prometheus.GaugeOpts{Namespace: "millrace", Subsystem: "kubernetes", Name: name, Help: help}
		reg.MustRegister(prometheus.NewGaugeFunc(o, value))
	}
	gauge("pods", "Pods that this worker waits for, or has left and which are not gone yet.", known)
	gauge("facts_pending", "Facts about pods that are not recorded yet.", pending)
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "millrace", Subsystem: "kubernetes", Name: "call_seconds",
		Help:    "How long calls of the API server took, waiting for the rate limit included, by call.",
		Buckets: prometheus.ExponentialBuckets(0.002, 3, 9),
	}, []string{"call"})
	reg.MustRegister(calls)
	return &metrics{
		created:      counter("pods_created_total", "Pods that this worker has created.").WithLabelValues(),
		adopted:      counter("pods_adopted_total", "Pods of earlier attempts that this worker has carried on with.").WithLabelValues(),
		vanished:     counter("pods_vanished_total", "Pods that somebody else has deleted while an attempt waited for them.").WithLabelValues(),
		forced:       counter("pods_forced_total", "Pods that did not end in time and were removed by force.").WithLabelValues(),
		refused:      counter("refused_total", "Creations that the cluster has refused, by reason.", "reason"),
		stuck:        counter("stuck_total", "Pods that were given up because they made no progress, by reason.", "reason"),
		calls:        calls,
		callFaults:   counter("call_faults_total", "Calls of the API server that it did not answer, by call and status code (0: no answer).", "call", "code"),
		watchFaults:  counter("watch_faults_total", "Watches that failed and were begun again, by what they watch.", "watch"),
		relists:      counter("relists_total", "How often all pods were listed, to begin a watch or to make good what one has missed.").WithLabelValues(),
		logFaults:    counter("log_faults_total", "Readings of logs that broke off and were taken up again.").WithLabelValues(),
		logGaps:      counter("log_gaps_total", "Outputs of which a part could not be read.").WithLabelValues(),
		recordFaults: counter("record_faults_total", "Recordings of facts that did not succeed and were repeated.").WithLabelValues(),
		swept:        counter("swept_total", "What the keeper has found left over and removed, by kind.", "kind"),
	}
}

// called notes a call of the API server.
func (m *metrics) called(what string, took time.Duration, err error) {
	m.calls.WithLabelValues(what).Observe(took.Seconds())
	if err == nil || answered(err) {
		return
	}
	code := 0
	if status, ok := err.(apierrors.APIStatus); ok {
		code = int(status.Status().Code)
	}
	m.callFaults.WithLabelValues(what, strconv.Itoa(code)).Inc()
}
