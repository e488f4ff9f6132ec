package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/millrace/millrace/internal/secret"
)

// Sources is where Load finds values.
type Sources struct {
	// File is the path of the YAML file. Empty means MILLRACE_CONFIG of Environ,
	// and no file when that is unset too.
	File string
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// Overrides are the values of flags, later ones before earlier ones.
	Overrides []Override
	// Embedded makes Millrace self-contained, for `millrace up`: each embedded
	// server is enabled unless its setting says otherwise or the server it stands
	// in for is named. DATABASE_URL and PG* are ignored then: `up` must not
	// create its tables in a database that somebody meant for something else.
	Embedded bool
	// Attach takes the addresses of brokers and database that are still unset
	// from the data directory of a running `millrace up`.
	Attach bool
	// BrokersOptional lets brokers be unset, when no role of the process needs Kafka.
	BrokersOptional bool
	// Required are paths that must have a value in the end, such as
	// "kafka.brokers"; an embedded server that is enabled counts as one.
	Required []string
}

// Override is a value from the command line.
type Override struct {
	Path   string
	Value  string
	Origin string // how the user wrote it: "--api-listen"
}

// Origins tells where the value of each path came from. A path that has its
// default is not in it.
type Origins map[string]string

// layer is what one source says: values by path, as parse takes them.
type layer struct {
	values  map[string]any
	origins Origins
}

func newLayer() layer { return layer{values: make(map[string]any), origins: make(Origins)} }

func (l layer) put(path string, value any, origin string) {
	l.values[path] = value
	l.origins[path] = origin
}

// Load returns the configuration that the sources make, complete and valid. The
// error is an *InvalidError with every fault that was found.
func (s Sources) Load() (Config, error) {
	config, _, err := s.LoadWithOrigins()
	return config, err
}

// LoadWithOrigins is Load that also tells where each value came from.
func (s Sources) LoadWithOrigins() (Config, Origins, error) {
	config := Default()
	env := environment(s.Environ)
	s.declare(&config, env)
	known := byPath(config.fields())

	var found faults
	file := s.fileLayer(env, known, &found)
	layers := []layer{
		file,
		env.engineLayer(file, &found),
		env.layer(known, &found),
		overrideLayer(s.Overrides, known, &found),
	}
	origins := config.apply(layers, &found)
	s.derive(&config, env, origins, &found)
	found = append(found, faultsOf(config.validate(origins))...)
	config.checkFiles(origins, &found)
	s.checkRequired(config, origins, &found)
	s.checkBrokers(config, origins, &found)
	return config, origins, found.err()
}

func byPath(fields []*field) map[string]*field {
	known := make(map[string]*field, len(fields))
	for _, f := range fields {
		known[f.Path] = f
	}
	return known
}

// overrideLayer reads the flags.
func overrideLayer(overrides []Override, known map[string]*field, found *faults) layer {
	l := newLayer()
	for _, o := range overrides {
		if _, ok := known[o.Path]; !ok {
			found.add(o.Origin, o.Path, "is not a setting%s", suggestion(o.Path, slices.Sorted(maps.Keys(known))))
			continue
		}
		l.put(o.Path, o.Value, o.Origin)
	}
	return l
}

// apply merges the layers, later ones over earlier ones, and writes the outcome
// into c. A value that cannot be read is a fault and leaves the earlier one.
func (c *Config) apply(layers []layer, found *faults) Origins {
	merged, origins := koanf.New("."), make(Origins)
	fields := c.fields()
	for _, l := range layers {
		for _, f := range fields {
			raw, ok := l.values[f.Path]
			if !ok {
				continue
			}
			if _, err := parse(f.value.Type(), raw); err != nil {
				found.add(l.origins[f.Path], f.Path, "%s", err)
				delete(l.values, f.Path)
				continue
			}
			if f.Type == "map" { // so that layers merge key by key
				l.values[f.Path], _ = toMapping(raw)
			}
			origins[f.Path] = l.origins[f.Path]
		}
		// A confmap of a Go map cannot fail to load.
		_ = merged.Load(confmap.Provider(l.values, "."), nil)
	}
	for _, f := range fields {
		if raw := merged.Get(f.Path); raw != nil {
			v, _ := parse(f.value.Type(), raw) // parsed before, layer by layer
			f.set(v)
		}
	}
	return origins
}

// derive fills in what depends on the machine and on other settings.
func (s Sources) derive(c *Config, env environ, origins Origins, found *faults) {
	c.deriveDataDir(env, origins, found)
	s.deriveServers(c, env, origins, found)
	if s.BrokersOptional {
		c.deriveRoles(origins)
	}
	if c.API.Auth.TokenFile == "" {
		c.API.Auth.TokenFile = filepath.Join(c.DataDir, tokenFile)
	}
	if c.Worker.WorkRoot == "" {
		c.Worker.WorkRoot = filepath.Join(c.DataDir, "work")
	}
	if c.Worker.ID == "" {
		c.Worker.ID = newWorkerID()
	}
}

func (c *Config) deriveDataDir(env environ, origins Origins, found *faults) {
	if c.DataDir == "" {
		dir, err := DefaultDataDir(os.Getuid(), env.get)
		if err != nil {
			found.add("", "data_dir", "%s", err)
			return
		}
		c.DataDir = dir
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		found.add(origins["data_dir"], "data_dir", "%s", err)
		return
	}
	c.DataDir = dir
}

// deriveServers decides which servers to use: those that are named, the embedded
// ones, or those of a running `millrace up`.
func (s Sources) deriveServers(c *Config, env environ, origins Origins, found *faults) {
	if s.Embedded {
		c.Embedded.Broker.Enabled = embed(c.Embedded.Broker.Enabled, len(c.Kafka.Brokers) > 0, origins, "embedded.broker.enabled")
		c.Embedded.Postgres.Enabled = embed(c.Embedded.Postgres.Enabled, !c.Postgres.DSN.IsZero(), origins, "embedded.postgres.enabled")
		return
	}
	if c.Postgres.DSN.IsZero() && !c.Embedded.Postgres.Enabled {
		if dsn, origin := env.postgresDSN(); dsn != "" {
			c.Postgres.DSN, origins["postgres.dsn"] = secret.New(dsn), origin
		}
	}
	if s.Attach {
		c.attach(origins, found)
	}
}

// embed decides whether `millrace up` runs an embedded server: as the setting at
// path says, else when no other server is named.
func embed(setting, named bool, origins Origins, path string) bool {
	if _, said := origins[path]; said || named {
		return setting
	}
	origins[path] = "millrace up"
	return true
}

// attach takes what is unset from the files of a running `millrace up`.
func (c *Config) attach(origins Origins, found *faults) {
	endpoints, err := ReadEndpoints(c.DataDir)
	if err != nil {
		found.add("", "data_dir", "%s", err)
		return
	}
	if len(c.Kafka.Brokers) == 0 && len(endpoints.Brokers) > 0 {
		c.Kafka.Brokers, origins["kafka.brokers"] = endpoints.Brokers, filepath.Join(c.DataDir, brokersFile)
	}
	if c.Postgres.DSN.IsZero() && !endpoints.DSN.IsZero() {
		c.Postgres.DSN, origins["postgres.dsn"] = endpoints.DSN, filepath.Join(c.DataDir, dsnFile)
	}
}

// checkFiles reports files that are named and not there.
func (c *Config) checkFiles(origins Origins, found *faults) {
	for _, f := range c.fields() {
		name := f.value
		if !f.mustExist || name.String() == "" {
			continue
		}
		file, err := os.Open(name.String())
		if err != nil {
			found.add(origins[f.Path], f.Path, "%s", cause(err))
			continue
		}
		_ = file.Close() // opened only to see whether it can be
	}
}

// cause says what is wrong with a file in words.
func cause(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Sprintf("%s %s: %s", pathErr.Op, pathErr.Path, pathErr.Err)
	}
	return err.Error()
}

// checkRequired reports settings that this command cannot do without.
func (s Sources) checkRequired(c Config, origins Origins, found *faults) {
	embedded := map[string]bool{
		"kafka.brokers": c.Embedded.Broker.Enabled,
		"postgres.dsn":  c.Embedded.Postgres.Enabled,
	}
	for _, f := range c.fields() {
		if !slices.Contains(s.Required, f.Path) || format(f.value) != "" || embedded[f.Path] {
			continue
		}
		ways := []string{f.Env, f.Path + " in the file given by --config"}
		if f.Flag != "" {
			ways = append([]string{"--" + f.Flag}, ways...)
		}
		found.add(origins[f.Path], f.Path, "is required: set %s, or start everything embedded with `millrace up`", strings.Join(ways, ", "))
	}
}
