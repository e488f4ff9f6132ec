package hooks_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

// BenchmarkStored measures requests to one webhook, from its handler to the commit.
func BenchmarkStored(b *testing.B) {
	p, pool := process(b, testenv.Database(b, postgres.MigrateDSN), open())
	b.SetParallelism(100)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if w := p.post("orders", `{"n":1}`, "X-Event", "placed"); w.Code != http.StatusAccepted {
				b.Error(w.Body.String())
			}
		}
	})
	b.StopTimer()
	var transactions float64
	_ = pool.QueryRow(b.Context(), `SELECT count(DISTINCT xmin::text) FROM executions`).Scan(&transactions)
	b.ReportMetric(float64(b.N)/max(transactions, 1), "requests/transaction")
}
