package deploy_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

const composeFile = "../compose.yaml"

// secretsDir is where compose.yaml mounts the secrets.
const secretsDir = "/secrets"

// project loads compose.yaml as `docker compose` does, with every profile, and
// with neither the environment of this process nor an env file.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithProfiles([]string{"*"}))
	require.NoError(t, err)
	p, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, p.Services)
	return p
}

// isInit reports whether a service does one thing and ends.
func isInit(s types.ServiceConfig) bool { return s.Restart == "no" }

// isOurs reports whether a service runs the millrace binary.
func isOurs(s types.ServiceConfig) bool { return strings.HasPrefix(s.Image, "millrace:") }

func TestComposeNeedsNoEnvironment(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	assert.NotRegexp(t, regexp.MustCompile(`(^|[^$])\$\{?[A-Za-z_]`), string(text), "a variable that somebody would have to set")
	assert.NotContains(t, string(text), "env_file")
}

func TestComposeServicesAreHealthChecked(t *testing.T) {
	t.Parallel()
	p := project(t)
	waitedFor := map[string]string{}
	for name, s := range p.Services {
		for dependency, how := range s.DependsOn {
			waitedFor[dependency] = how.Condition
			assert.Contains(t, p.Services, dependency)
			if isInit(p.Services[dependency]) {
				assert.Equal(t, types.ServiceConditionCompletedSuccessfully, how.Condition, "%s waits for %s", name, dependency)
			} else {
				assert.Equal(t, types.ServiceConditionHealthy, how.Condition, "%s waits for %s", name, dependency)
			}
		}
		checked := s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 0
		assert.Equal(t, !isInit(s), checked, "health check of %s", name)
		if !isInit(s) {
			assert.Equal(t, types.RestartPolicyUnlessStopped, s.Restart, "restart policy of %s", name)
		}
	}
	for _, name := range []string{"secrets", "migrate", "kafka", "postgres"} {
		assert.Contains(t, waitedFor, name)
	}
}

func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for name, s := range project(t).Services {
		assert.NotEqual(t, "host", s.NetworkMode, "network of %s", name)
		for _, port := range s.Ports {
			assert.Equal(t, "127.0.0.1", port.HostIP, "%s publishes %s", name, port.Published)
			assert.Empty(t, taken[port.Published], "port %s of %s", port.Published, name)
			taken[port.Published] = name
		}
	}
	assert.Equal(t, "api", taken["8080"])
	assert.Equal(t, "api", taken["9090"])
	assert.Equal(t, "api", taken["9091"])
}

func TestComposePinsImages(t *testing.T) {
	t.Parallel()
	exact := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?$`)
	p := project(t)
	for name, s := range p.Services {
		if isOurs(s) {
			require.NotNil(t, s.Build, "%s is built here", name)
			continue
		}
		assert.Regexp(t, exact, s.Image, "image of %s", name)
	}
	// What compose runs is what the tests on real Kafka run.
	assert.Equal(t, "apache/kafka:"+realkafka.VersionDefault, p.Services["kafka"].Image)
}

// TestComposeHoldsNoSecrets looks at every value that could be one.
func TestComposeHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	secretName := regexp.MustCompile(`(?i)(password|passwd|secret|token|dsn|_key)`)
	withPassword := regexp.MustCompile(`://[^:/@%]*:[^@%]+@`)
	for name, s := range project(t).Services {
		for variable, value := range s.Environment {
			if value == nil || *value == "" {
				continue
			}
			if secretName.MatchString(variable) {
				assert.Regexp(t, `_FILE$`, variable, "%s of %s is given in the clear", variable, name)
				assert.True(t, strings.HasPrefix(*value, secretsDir+"/"), "%s of %s is %s", variable, name, *value)
			}
			assert.NotRegexp(t, withPassword, *value, "%s of %s", variable, name)
		}
		for _, word := range slices.Concat(s.Command, s.Entrypoint) {
			assert.NotRegexp(t, withPassword, word, "command of %s", name)
		}
	}
}

func TestComposeGivesTheTokenToTheAPIOnly(t *testing.T) {
	t.Parallel()
	for name, s := range project(t).Services {
		for _, v := range s.Volumes {
			if v.Source == "api-secrets" {
				assert.Contains(t, []string{"secrets", "api"}, name)
			}
			if strings.HasSuffix(v.Source, "-secrets") && name != "secrets" {
				assert.True(t, v.ReadOnly, "%s may write %s", name, v.Source)
			}
		}
	}
}

func TestComposeHardensOurServices(t *testing.T) {
	t.Parallel()
	for name, s := range project(t).Services {
		if !isOurs(s) {
			continue
		}
		assert.True(t, s.ReadOnly, "root file system of %s", name)
		assert.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		assert.Contains(t, s.CapDrop, "ALL", name)
		assert.False(t, s.Privileged, name)
		assert.Empty(t, s.User, "%s keeps the image's unprivileged user", name)
	}
}

// TestComposeSettingsAreKnown loads the configuration of each service as the
// service will, with the secrets that the script of the secrets service writes.
func TestComposeSettingsAreKnown(t *testing.T) {
	t.Parallel()
	p := project(t)
	dir := t.TempDir()
	writeSecrets(t, p, dir)
	var roles []configs.Role
	for name, s := range p.Services {
		if !isOurs(s) {
			continue
		}
		config, err := sourcesOf(s, dir, t.TempDir()).Load()
		if !assert.NoError(t, err, "settings of %s", name) {
			continue
		}
		assert.Contains(t, config.Postgres.DSN.Reveal(), "@postgres:5432/millrace", name)
		if s.Command[0] == "serve" {
			roles = append(roles, config.Roles...)
		}
		if name == "api" {
			require.FileExists(t, config.API.Auth.TokenFile)
			// Where commands look for it: docker compose exec api millrace submit ...
			assert.Equal(t, configs.TokenFile(config.DataDir), config.API.Auth.TokenFile)
		}
	}
	assert.ElementsMatch(t, configs.Default().Roles, roles, "each role runs in one service")
}

// sourcesOf is where a service's configuration comes from: its environment, with
// the secrets taken from dir, and --roles.
func sourcesOf(s types.ServiceConfig, dir, dataDir string) configs.Sources {
	sources := configs.Sources{
		Environ:  []string{"MILLRACE_DATA_DIR=" + dataDir},
		Required: []string{"kafka.brokers", "postgres.dsn"},
	}
	for name, value := range s.Environment {
		if value != nil {
			sources.Environ = append(sources.Environ, name+"="+strings.Replace(*value, secretsDir, dir, 1))
		}
	}
	if i := slices.Index(s.Command, "--roles"); i >= 0 {
		sources.Overrides = []configs.Override{{Path: "roles", Value: s.Command[i+1], Origin: "--roles"}}
	}
	return sources
}

// TestComposeStaysWithinTheConnectionBudget adds up what the processes may open.
func TestComposeStaysWithinTheConnectionBudget(t *testing.T) {
	t.Parallel()
	p := project(t)
	limit := 0
	for _, word := range p.Services["postgres"].Command {
		if value, ok := strings.CutPrefix(word, "max_connections="); ok {
			var err error
			limit, err = strconv.Atoi(value)
			require.NoError(t, err)
		}
	}
	total := 0
	for _, s := range p.Services {
		if isOurs(s) && s.Command[0] == "serve" {
			conns := s.Environment["MILLRACE_POSTGRES_MAX_CONNS"]
			require.NotNil(t, conns)
			n, err := strconv.Atoi(*conns)
			require.NoError(t, err)
			total += n + 1 // one to listen for wake-ups
		}
	}
	const reserved = 3 // superuser_reserved_connections
	assert.Positive(t, total)
	assert.LessOrEqual(t, 2*total, limit-reserved, "the roles may be doubled")
}

// writeSecrets runs the script of the secrets service with dir in place of its
// directory, and with nobody to give the files to.
func writeSecrets(t *testing.T, p *types.Project, dir string) {
	t.Helper()
	s := p.Services["secrets"]
	for _, v := range s.Volumes {
		target := strings.Replace(v.Target, secretsDir, dir, 1)
		require.NoError(t, os.MkdirAll(target, 0o700))
		// The script takes the right to write away, which the removal of dir needs.
		t.Cleanup(func() { _ = os.Chmod(target, 0o700) })
	}
	require.Len(t, s.Command, 1)
	script := "chown() { :; }\n" + strings.ReplaceAll(s.Command[0], secretsDir, dir)
	shell := append(slices.Clone(s.Entrypoint), script)
	out, err := exec.CommandContext(t.Context(), shell[0], shell[1:]...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Empty(t, string(out), "nothing of a secret is printed")
}

func TestSecretsScript(t *testing.T) {
	t.Parallel()
	p := project(t)
	dir := t.TempDir()
	writeSecrets(t, p, dir)
	first := readAll(t, dir)
	require.ElementsMatch(t, []string{"database/password", "database/dsn", "api/token"}, keys(first))
	assert.Regexp(t, `^[0-9a-f]{64}$`, first["database/password"])
	assert.Regexp(t, `^[0-9a-f]{64}$`, first["api/token"])
	assert.NotEqual(t, first["database/password"], first["api/token"])
	assert.Equal(t, fmt.Sprintf("postgres://millrace:%s@postgres:5432/millrace?sslmode=disable", first["database/password"]), first["database/dsn"])
	for name, mode := range map[string]fs.FileMode{
		"database": fs.ModeDir | 0o750, "database/password": 0o440, "database/dsn": 0o440,
		"api": fs.ModeDir | 0o500, "api/token": 0o400,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}

	writeSecrets(t, p, dir)
	assert.Equal(t, first, readAll(t, dir), "a second start changes nothing")

	other := t.TempDir()
	writeSecrets(t, p, other)
	assert.NotEqual(t, first["api/token"], readAll(t, other)["api/token"], "another installation has other secrets")
}

// TestSecretsScriptAfterACrash starts it where an earlier run was killed.
func TestSecretsScriptAfterACrash(t *testing.T) {
	t.Parallel()
	p := project(t)
	dir := t.TempDir()
	for _, name := range []string{"database/password", "database/dsn.new", "api/token.new"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
	}
	writeSecrets(t, p, dir)
	all := readAll(t, dir)
	require.ElementsMatch(t, []string{"database/password", "database/dsn", "api/token"}, keys(all))
	assert.Contains(t, all["database/dsn"], ":"+all["database/password"]+"@")
	assert.Regexp(t, `^[0-9a-f]{64}$`, all["api/token"])
}

// readAll returns the files below dir by their slash-separated names.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		all[name] = string(text)
		return err
	})
	require.NoError(t, err)
	return all
}

func keys(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}
