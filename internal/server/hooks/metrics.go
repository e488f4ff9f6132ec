package hooks

import "github.com/prometheus/client_golang/prometheus"

// What becomes of requests.
const (
	resultCreated      = "created"
	resultDuplicate    = "duplicate"
	resultRefused      = "refused"
	resultInvalid      = "invalid"
	resultUnauthorized = "unauthorized"
	resultRateLimited  = "rate_limited"
	resultBlocked      = "blocked"
	resultOverloaded   = "overloaded"
	resultChallenge    = "challenge"
	resultUnknown      = "unknown"
	resultError        = "error"
)

type metrics struct {
	requests *prometheus.CounterVec
	batch    prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_webhook_requests_total",
			Help: "Requests to webhooks by trigger and what became of them. Those to no enabled webhook have no trigger.",
		}, []string{"trigger", "result"}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_webhook_gathered_requests",
			Help:    "Requests to one webhook that shared a transaction.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100},
		}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.batch)
	}
	return m
}
