package kubelet

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// serveLogs is /containerLogs/{namespace}/{pod}/{container} of a kubelet.
func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	p := k.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q does not exist", r.PathValue("namespace")+"/"+r.PathValue("pod")), http.StatusNotFound)
		return
	}
	name := r.PathValue("container")
	j, waiting := p.journal(name)
	if j == nil {
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, p.name(), waiting), http.StatusBadRequest)
		return
	}
	options, err := parseLogOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	flusher, ok := w.(http.Flusher)
	if !ok {
		http.Error(w, "no streaming", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	if err := j.writeTo(r.Context(), w, flusher.Flush, options); err != nil || k.lost() {
		panic(http.ErrAbortHandler) // what is cut must not look like the end
	}
}

func parseLogOptions(r *http.Request) (logOptions, error) {
	q := r.URL.Query()
	o := logOptions{tail: -1, limit: -1, follow: q.Get("follow") == "true", timestamps: q.Get("timestamps") == "true"}
	if q.Get("previous") == "true" {
		return o, fmt.Errorf("previous terminated container not found")
	}
	for name, into := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return o, fmt.Errorf("invalid %s %q", name, text)
			}
			*into = n
		}
	}
	if text := q.Get("sinceSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return o, fmt.Errorf("invalid sinceSeconds %q", text)
		}
		o.since = time.Now().Add(-time.Duration(n) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return o, fmt.Errorf("invalid sinceTime %q", text)
		}
		o.since = t
	}
	switch stream := strings.ToLower(q.Get("stream")); stream {
	case "", "all":
	case "stdout":
		o.stream = 'o'
	case "stderr":
		o.stream = 'e'
	default:
		return o, fmt.Errorf("invalid stream %q", stream)
	}
	return o, nil
}
