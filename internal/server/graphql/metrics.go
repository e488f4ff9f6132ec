package graphql

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// metrics are those of GraphQL. Requests over HTTP as such are counted by package
// server.
type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	seconds  prometheus.Histogram
	cost     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_graphql_requests_total",
			Help: "GraphQL requests by outcome: ok, partial (a field failed), refused (a limit), invalid, failed.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_graphql_refused_total",
			Help: "Errors of GraphQL requests that broke a limit, by the limit.",
		}, []string{"limit"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_graphql_request_seconds",
			Help:    "Time to execute a GraphQL request, refused ones included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		cost: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "millrace_graphql_request_cost",
			Help:    "Estimated cost of GraphQL requests whose cost was estimated.",
			Buckets: []float64{10, 100, 1000, 10_000, 50_000, 100_000, 200_000, 1_000_000},
		}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.refused, m.seconds, m.cost)
	}
	return m
}

// observe counts an answer.
func (m *metrics) observe(a answer) {
	m.requests.WithLabelValues(outcome(a)).Inc()
	if a.cost > 0 {
		m.cost.Observe(float64(a.cost))
	}
	for _, e := range a.errors {
		if limit, ok := e.Extensions["limit"].(string); ok {
			m.refused.WithLabelValues(limit).Inc()
		}
	}
}

func outcome(a answer) string {
	if len(a.errors) == 0 {
		return "ok"
	}
	worst := "invalid"
	for _, e := range a.errors {
		switch code(e) {
		case codeInternal, codeUnavailable:
			return "failed"
		case codeLimit, codeTimeout:
			worst = "refused"
		}
	}
	if a.data != nil && string(a.data) != "null" {
		return "partial"
	}
	return worst
}

func code(e *gqlerror.Error) string {
	c, _ := e.Extensions["code"].(string)
	return c
}
