package configs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// EnvPrefix begins the name of every environment variable that Millrace reads,
// other than the well-known ones of PostgreSQL.
const EnvPrefix = "MILLRACE_"

// environ is the environment as a map.
type environ map[string]string

func environment(pairs []string) environ {
	env := make(environ, len(pairs))
	for _, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

func (e environ) get(name string) string { return e[name] }

// Variables that begin like ours and are none of our settings.
var (
	// clientVariables are read by the command line itself, not as settings.
	clientVariables = []string{"MILLRACE_CONFIG", "MILLRACE_API_URL", "MILLRACE_TOKEN"}
	// A Kubernetes service that is called "millrace" puts such variables into
	// every pod of its namespace.
	serviceLink = regexp.MustCompile(`^MILLRACE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
	// What a running execution finds in its environment, so that it can call the
	// command line, what tests use, and secrets of triggers (TriggerEnvPrefix).
	otherVariables = regexp.MustCompile(`^MILLRACE_(EXECUTION|ATTEMPT|WORKDIR|TEST|E2E|TRIGGER)(_|$)`)
)

// layer reads the settings. A variable that is empty counts as unset, since
// compose files and scripts pass variables on without knowing whether they are
// set.
func (e environ) layer(known map[string]*field, found *faults) layer {
	l := newLayer()
	names := make(map[string]*field, len(known))
	files := make(map[string]*field)
	for _, f := range known {
		names[f.Env] = f
	}
	for _, f := range known {
		if _, taken := names[f.Env+"_FILE"]; f.Type == "secret" && !taken {
			files[f.Env+"_FILE"] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		value := e[name]
		switch {
		case !strings.HasPrefix(name, EnvPrefix) || value == "":
		case names[name] != nil:
			l.put(names[name].Path, value, name)
		case files[name] != nil:
			e.secretFile(l, files[name], name, value, found)
		case slices.Contains(clientVariables, name), serviceLink.MatchString(name), otherVariables.MatchString(name):
		default:
			candidates := slices.Sorted(maps.Keys(names))
			found.add(name, "", "is not a setting%s", suggestion(name, append(candidates, clientVariables...)))
		}
	}
	return l
}

// secretFile reads a secret from the file that a variable names. A line break at
// the end, which editors leave, is not part of it.
func (e environ) secretFile(l layer, f *field, name, file string, found *faults) {
	if e[f.Env] != "" {
		found.add(name, f.Path, "%s is set as well: keep one of them", f.Env)
		return
	}
	content, err := readBounded(file, maxFileBytes)
	if err != nil {
		found.add(name, f.Path, "%s", cause(err))
		return
	}
	text := strings.TrimRight(string(content), "\r\n")
	if text == "" {
		found.add(name, f.Path, "the file %s is empty", file)
		return
	}
	l.put(f.Path, text, name)
}

// expand replaces ${VAR} and ${VAR:default}. A variable that is empty counts as
// unset, and one that is unset and has no default is an error. $${ stands for ${.
func (e environ) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("${ without }: write $${ for the text itself")
		}
		value, err := e.variable(inner)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = after
	}
}

func (e environ) variable(inner string) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":")
	if value := e[name]; value != "" {
		return value, nil
	}
	if !hasFallback {
		return "", fmt.Errorf("the environment variable %s is not set and has no default: write ${%s:default}", name, name)
	}
	return fallback, nil
}

// postgresDSN returns the data source name that the well-known variables of
// PostgreSQL make, and which variable decided, or "".
func (e environ) postgresDSN() (dsn, origin string) {
	if url := e["DATABASE_URL"]; url != "" {
		return url, "DATABASE_URL"
	}
	origin = firstSet(e, "PGHOST", "PGSERVICE")
	if origin == "" {
		return "", ""
	}
	keywords := [][2]string{
		{"PGHOST", "host"}, {"PGPORT", "port"}, {"PGUSER", "user"}, {"PGPASSWORD", "password"},
		{"PGDATABASE", "dbname"}, {"PGSSLMODE", "sslmode"}, {"PGSSLROOTCERT", "sslrootcert"},
		{"PGSSLCERT", "sslcert"}, {"PGSSLKEY", "sslkey"}, {"PGPASSFILE", "passfile"},
		{"PGSERVICE", "service"}, {"PGSERVICEFILE", "servicefile"}, {"PGOPTIONS", "options"},
	}
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	var pairs []string
	for _, k := range keywords {
		if value := e[k[0]]; value != "" {
			pairs = append(pairs, k[1]+"='"+quote.Replace(value)+"'")
		}
	}
	return strings.Join(pairs, " "), origin
}

func firstSet(e environ, names ...string) string {
	for _, name := range names {
		if e[name] != "" {
			return name
		}
	}
	return ""
}
