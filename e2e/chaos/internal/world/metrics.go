package world

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Get asks the member's listener for operators.
func (m *Member) Get(ctx context.Context, path string) (string, error) {
	base := m.AdminURL()
	if base == "" {
		return "", fmt.Errorf("%s does not serve", m.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// Metric returns the values of a metric whose labels the caller wants.
func (m *Member) Metric(ctx context.Context, name string, want func(labels map[string]string) bool) ([]float64, error) {
	text, err := m.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	var values []float64
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		labels, value, ok := sample(lines.Text(), name)
		if ok && want(labels) {
			values = append(values, value)
		}
	}
	return values, nil
}

// sample reads one line of the text format; labels here hold no quotes and commas.
func sample(line, name string) (labels map[string]string, value float64, ok bool) {
	rest, ok := strings.CutPrefix(line, name)
	if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
		return nil, 0, false
	}
	labels = map[string]string{}
	if list, after, braces := strings.Cut(strings.TrimPrefix(rest, "{"), "} "); braces {
		rest = after
		for pair := range strings.SplitSeq(list, ",") {
			key, quoted, _ := strings.Cut(pair, "=")
			labels[key] = strings.Trim(quoted, `"`)
		}
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
	return labels, value, err == nil
}
