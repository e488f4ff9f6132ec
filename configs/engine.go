package configs

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// enginePrefix begins the variables of the engine whose contract package workflow.v1 is.
const enginePrefix = "WE_"

// The values of WE_KAFKA_TRANSPORT.
const (
	transportPlain = "plaintext"
	transportSASL  = "sasl_scram_tls"
)

// engineVariable is a variable of that engine, and the settings that it stands for.
type engineVariable struct {
	name  string
	paths []string
	// secured marks those that mean something with WE_KAFKA_TRANSPORT=sasl_scram_tls only.
	secured bool
	// read turns the text into the value of the first path. Nil: it is taken as it is.
	read func(text string, file layer) (string, error)
	// note is what the reference adds.
	note string
}

// engineVariables are all that there are.
func engineVariables() []engineVariable {
	return []engineVariable{
		{name: "WE_POSTGRES_DSN", paths: []string{"postgres.dsn"}, note: "With it and without brokers `millrace serve` plays the roles that need PostgreSQL alone."},
		{name: "WE_DISPATCH_MODE", paths: []string{"jobs.dispatch_mode"}},
		{name: "WE_KAFKA_SEED_BROKERS", paths: []string{"kafka.brokers"}},
		{name: "WE_KAFKA_TRANSPORT", paths: []string{"kafka.tls.enabled", "kafka.sasl.mechanism"}, read: readTransport,
			note: "`plaintext`, which is the default, or `sasl_scram_tls`; with `plaintext` the variables of SASL and TLS are passed over."},
		{name: "WE_KAFKA_SASL_MECHANISM", paths: []string{"kafka.sasl.mechanism"}, secured: true, note: "`SCRAM-SHA-512` by default."},
		{name: "WE_KAFKA_SASL_USERNAME", paths: []string{"kafka.sasl.username"}, secured: true},
		{name: "WE_KAFKA_SASL_PASSWORD", paths: []string{"kafka.sasl.password"}, secured: true},
		{name: "WE_KAFKA_TLS_CA_PATH", paths: []string{"kafka.tls.ca_file"}, secured: true},
		{name: "WE_KAFKA_TLS_SERVER_NAME", paths: []string{"kafka.tls.server_name"}, secured: true},
		{name: "WE_REST_PORT", paths: []string{"api.listen"}, read: portOf("api.listen"), note: portNote},
		{name: "WE_GRPC_PORT", paths: []string{"grpc.listen"}, read: portOf("grpc.listen"), note: portNote},
		{name: "WE_METRICS_PORT", paths: []string{"admin.listen"}, read: portOf("admin.listen"), note: portNote},
		{name: "WE_LOG_LEVEL", paths: []string{"log.level"}},
		{name: "WE_AUDIT_LOG_ENABLED", paths: []string{"workflows.audit_log"}, read: readBool},
		{name: "WE_OUTBOX_BATCH_SIZE", paths: []string{"relay.batch_size"}},
		{name: "DB_MAX_CONNS", paths: []string{"postgres.max_conns"}},
		{name: "DB_MIN_CONNS", paths: []string{"postgres.min_conns"}},
	}
}

const portNote = "The port alone: the host stays, which is a loopback address unless the file says otherwise."

// engineLayer reads the variables of the engine. They stand below our own: between the
// file and MILLRACE_*.
func (e environ) engineLayer(file layer, found *faults) layer {
	l := newLayer()
	var known []string
	for _, v := range engineVariables() {
		known = append(known, v.name)
		text := e[v.name]
		if text == "" || v.secured && e["WE_KAFKA_TRANSPORT"] != transportSASL {
			continue
		}
		if v.read != nil {
			var err error
			if text, err = v.read(text, file); err != nil {
				found.add(v.name, v.paths[0], "%s", err)
				continue
			}
		}
		l.put(v.paths[0], text, v.name)
		if v.name == "WE_KAFKA_TRANSPORT" && text == "true" {
			l.put("kafka.sasl.mechanism", "SCRAM-SHA-512", v.name) // WE_KAFKA_SASL_MECHANISM comes after it
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if strings.HasPrefix(name, enginePrefix) && e[name] != "" && !slices.Contains(known, name) {
			found.add(name, "", "is not a setting%s", suggestion(name, known))
		}
	}
	return l
}

func readTransport(text string, _ layer) (string, error) {
	switch text {
	case transportPlain:
		return "false", nil
	case transportSASL:
		return "true", nil
	}
	return "", fmt.Errorf("want %s or %s, not %q", transportPlain, transportSASL, text)
}

func readBool(text string, _ layer) (string, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return "", fmt.Errorf("want true or false, not %q", text)
	}
	return strconv.FormatBool(b), nil
}

// portOf replaces the port of an address: that in the file, or the default.
func portOf(path string) func(string, layer) (string, error) {
	return func(text string, file layer) (string, error) {
		if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("want a port from 1 to 65535, not %q", text)
		}
		config := Default()
		address := format(byPath(config.fields())[path].value)
		if said, ok := file.values[path].(string); ok {
			address = said
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = "127.0.0.1" // the file's fault is reported where it is
		}
		return net.JoinHostPort(host, text), nil
	}
}

const engineHead = `
## The variables of workflow.v1

What runs the engine whose contract this is runs Millrace with the same environment. These variables stand between the
file and ` + "`MILLRACE_*`" + `, and mean the settings named. Another variable that begins with ` + "`WE_`" + ` is an error. Secrets are read
from the environment only.

| Variable | Setting | |
|---|---|---|
`

// writeEngineVariables writes them for the reference.
func writeEngineVariables(w io.Writer) {
	_, _ = io.WriteString(w, engineHead) // a strings.Builder takes everything
	for _, v := range engineVariables() {
		_, _ = fmt.Fprintf(w, "| `%s` | `%s` | %s |\n", v.name, strings.Join(v.paths, "`, `"), v.note)
	}
}
