package trigger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
)

// check reads and compiles a definition and returns what is wrong with it, as
// "pointer code", warnings with a ~ before them.
func check(t *testing.T, text string) (found []string, faults []trigger.Fault) {
	t.Helper()
	defaults := installed()
	defaults.OwnTopics = []string{"execution_events"}
	_, faults = trigger.Check([]byte(text), defaults)
	for _, f := range faults {
		assert.NotEmpty(t, f.Message)
		mark := ""
		if f.Warning {
			mark = "~"
		}
		found = append(found, mark+f.Pointer+" "+f.Code)
	}
	return found, faults
}

const (
	kafka    = `"kafka": {"topics": ["orders"]}`
	webhook  = `"webhook": {"auth": {"bearer": {"env": "MILLRACE_TRIGGER_T"}}}`
	schedule = `"schedule": {"cron": "@daily"}`
	target   = `"target": {"execution": {"executor": "function", "spec": {"name": "f"}, "concurrency_key": "${key}"}}`
	started  = `"target": {"execution": {"executor": "function", "spec": {"name": "f"}}}`
)

// TestFaults holds that what cannot be run is refused, where the fault is.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"fine", `{"id": "a", ` + kafka + `, ` + target + `}`, ""},
		{"nothing", `{}`, "/id required, /type required, /target required"},
		{"not json", `{`, " syntax"},
		{"no object", `[]`, " wrong_type"},
		{"null", `null`, " wrong_type"},
		{"id", `{"id": "A b", ` + kafka + `, ` + target + `}`, "/id invalid"},
		{"long id", `{"id": "` + strings.Repeat("a", 64) + `", ` + kafka + `, ` + target + `}`, "/id too_long"},
		{"unknown", `{"id": "a", "colour": 1, "kafka": {"topic": "a", "topics": "orders"}, ` + target + `}`, "/colour unknown_field, /kafka/topic unknown_field, /kafka/topics wrong_type"},
		{"twice", `{"id": "a", "id": "b", ` + kafka + `, ` + target + `}`, "/id duplicate_field"},
		{"shape and more", `{"id": "a", "colour": 1, "members": 99, "kafka": {"topisc": ["a"], "from": "now"}, "target": {"execution": {"executor": "proces", "priority": 9}}}`,
			"/colour unknown_field, /kafka/topisc unknown_field, /kafka/from invalid, /target/execution/priority out_of_range, /target/execution/executor unknown_executor, /members out_of_range"},
		{"types", `{"id": 1, "enabled": "yes", "members": 1.5, "alert_after": "soon", ` + kafka + `, ` + target + `}`, "/id wrong_type, /enabled wrong_type, /members wrong_type, /alert_after invalid"},
		{"type", `{"id": "a", "type": "kafka", ` + webhook + `, ` + started + `}`, "/kafka required, /webhook conflict"},
		{"unknown type", `{"id": "a", "type": "mqtt", ` + webhook + `, ` + started + `}`, "/type invalid"},
		{"two sources", `{"id": "a", ` + webhook + `, ` + schedule + `, ` + started + `}`, "/type conflict"},
		{"two targets", `{"id": "a", ` + webhook + `, "target": {"execution": {"executor": "function", "spec": {"name": "f"}}, "workflow": {"id": "w"}}}`, "/target conflict"},
		{"words", `{"id": "a", "limit_action": "drop", "on_poison": "skip", "limits": {"open": -1}, "members": 65, "alert_after": "900h", ` + kafka + `, ` + target + `}`,
			"/limits/open out_of_range, /limit_action invalid, /on_poison invalid, /members out_of_range, /alert_after out_of_range"},
		{"for kafka only", `{"id": "a", "on_poison": "stall", "members": 2, ` + webhook + `, ` + started + `}`, "/on_poison conflict, /members conflict"},
		{"fires once", `{"id": "a", "on_poison": "stall", "members": 2, ` + schedule + `, ` + started + `}`, "/on_poison conflict, /members conflict"},
		{"control characters", `{"id": "a", "tenant": "a\u0000", "description": "two\nlines\u0007", ` + kafka + `, ` + target + `}`, "/description invalid, /tenant invalid"},
	} {
		found, _ := check(t, test.text)
		assert.Equal(t, test.want, strings.Join(found, ", "), test.name)
	}
}

func TestFaultsOfKafka(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`"topics": []`:                                                                             "/topics required",
		`"topics": ["a", "a"]`:                                                                     "/topics/1 duplicate_field",
		`"topics": ["a*", "..", "ä"]`:                                                              "/topics/0 invalid, /topics/1 invalid, /topics/2 invalid",
		`"topics": ["a"], "brokers": ["kafka"]`:                                                    "/brokers/0 invalid",
		`"topics": ["a"], "brokers": ["a:1", "http://b"]`:                                          "/brokers/1 invalid",
		`"topics": ["a"], "brokers": ["a:0", "b:99999"]`:                                           "/brokers/0 invalid, /brokers/1 invalid",
		`"topics": ["a"], "from": "now"`:                                                           "/from invalid",
		`"topics": ["a"], "prefetch_count": -1`:                                                    "/prefetch_count out_of_range",
		`"topics": ["a"], "prefetch_bytes": 9999999999`:                                            "/prefetch_bytes out_of_range",
		`"topics": ["a"], "max_bytes_per_fetch": 1`:                                                "/max_bytes_per_fetch out_of_range",
		`"topics": ["a"], "rate_limit_per_second": -1`:                                             "/rate_limit_per_second out_of_range",
		`"topics": ["a"], "batch": 100000`:                                                         "/batch out_of_range",
		`"topics": ["a"], "group": "a\u0001"`:                                                      "/group invalid",
		`"topics": ["a"], "tls": {"enabled": true}`:                                                "/tls conflict",
		`"topics": ["a"], "sasl": {"mechanism": "PLAIN"}`:                                          "/sasl conflict, /sasl/username required, /sasl/password required",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"server_name": "x"}`:                         "/tls/enabled conflict",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"enabled": true, "cert": {"file": "c.pem"}}`: "/tls/key required",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"enabled": true, "ca": {"file": "a", "env": "MILLRACE_TRIGGER_A"}}`:                              "/tls/ca conflict",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"enabled": true, "ca": {"file": "../a"}}`:                                                        "/tls/ca/file secret_not_allowed",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"enabled": true, "ca": {"file": "/etc/passwd"}}`:                                                 "/tls/ca/file secret_not_allowed",
		`"topics": ["a"], "brokers": ["a:1"], "sasl": {"username": "u"}`:                                                                               "/sasl/mechanism required",
		`"topics": ["a"], "brokers": ["a:1"], "sasl": {"mechanism": "SCRAM-256", "username": "u"}`:                                                     "/sasl/mechanism invalid",
		`"topics": ["a"], "brokers": ["a:1"], "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": {"env": "PGPASSWORD"}}`:              "/sasl/password/env secret_not_allowed",
		`"topics": ["a"], "brokers": ["a:1"], "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": {"env": "MILLRACE_TOKEN"}}`:          "/sasl/password/env secret_not_allowed",
		`"topics": ["a"], "brokers": ["a:1"], "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": "hunter2"}`:                          "/sasl/password wrong_type",
		`"topics": ["a"], "brokers": ["a:1"], "tls": {"enabled": true}, "sasl": {"mechanism": "OAUTHBEARER", "username": "u", "token": {"file": "t"}}`: "/sasl/username conflict",
	} {
		found, faults := check(t, `{"id": "a", "kafka": {`+source+`}, `+target+`}`)
		for i := range found {
			found[i] = strings.TrimPrefix(found[i], "/kafka")
		}
		assert.ElementsMatch(t, strings.Split(want, ", "), found, source)
		assert.NotContains(t, fmt.Sprint(faults), "hunter2", "what may be a secret is not repeated")
	}
	d, _ := trigger.Decode([]byte(`{"id": "a", ` + kafka + `, ` + target + `}`))
	_, faults := trigger.Compile(trigger.Stored{Definition: d}, trigger.Defaults{})
	require.Len(t, faults, 1)
	assert.Equal(t, "/kafka/brokers", faults[0].Pointer, "an installation without Kafka has no brokers to share")
}

func TestFaultsOfSchedules(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		``:                                       " required",
		`"cron": "* * *"`:                        "/cron invalid",
		`"cron": "0 0 30 2 *"`:                   "/cron invalid",
		`"cron": "@daily", "time_zone": "X"`:     "/time_zone invalid",
		`"cron": "@daily", "time_zone": "Local"`: "/time_zone invalid",
		`"cron": "@daily", "at": ["2026-01-02T03:04:05Z"]`:                                   " conflict",
		`"at": ["2026-01-02T03:04:05Z"], "time_zone": "UTC", "from": "2026-01-02T03:04:05Z"`: "/time_zone conflict, /from conflict",
		`"at": ["2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00"]`:                        "/at/1 duplicate_field",
		`"at": ["tomorrow"]`: "/at/0 invalid",
		`"cron": "@daily", "from": "2027-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"`: "/until conflict",
		`"cron": "@daily", "missed": "never", "overlap": "kill"`:                            "/missed invalid, /overlap invalid",
		`"cron": "@daily", "missed_max": 3`:                                                 "/missed_max conflict",
		`"cron": "@daily", "missed_after": "48h", "jitter": "48h"`:                          "/missed_after out_of_range, /jitter out_of_range",
		`"cron": "@daily", "input": [1]`:                                                    "/input wrong_type",
	} {
		found, _ := check(t, `{"id": "a", "schedule": {`+source+`}, `+started+`}`)
		for i := range found {
			found[i] = strings.TrimPrefix(found[i], "/schedule")
		}
		assert.ElementsMatch(t, strings.Split(want, ", "), found, source)
	}
}

func TestFaultsOfWebhookAuth(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`"auth": {}`: "/auth required",
		`"auth": {"none": true, "bearer": {"env": "MILLRACE_TRIGGER_A"}}`: "/auth conflict",
		`"auth": {"bearer": {}}`:                     "/auth/bearer required",
		`"auth": {"bearer": "hunter2"}`:              "/auth/bearer wrong_type",
		`"auth": {"hmac": {"secrets": ["hunter2"]}}`: "/auth/hmac/secrets/0 wrong_type",
		`"auth": {"hmac": {"secrets": [{"env": "MILLRACE_TRIGGER_A"}, {"env": "HOME"}]}}`: "/auth/hmac/secrets/1/env secret_not_allowed",
		`"auth": {"basic": {"username": "a:b", "password": {"file": "p"}}}`:               "/auth/basic/username invalid",
		`"auth": {"basic": {"username": "a"}}`:                                            "/auth/basic/password required",
		`"auth": {"bearer": {"env": "MILLRACE_TRIGGER_A"}}, "max_body_bytes": 999999999`:  "/max_body_bytes out_of_range",
		`"auth": {"bearer": {"env": "MILLRACE_TRIGGER_A"}}, "idempotency_header": "a b"`:  "/idempotency_header invalid",
		`"auth": {"bearer": {"env": "MILLRACE_TRIGGER_A"}}, "burst": 5`:                   "/burst conflict",
		`"auth": {"hmac": {"secrets": [{"file": "s"}], "algorithm": "sha1"}}`:             "~/auth/hmac/algorithm weak_signature",
	} {
		found, faults := check(t, `{"id": "a", "webhook": {`+source+`}, `+started+`}`)
		for i := range found {
			found[i] = strings.Replace(found[i], "/webhook", "", 1)
		}
		assert.ElementsMatch(t, strings.Split(want, ", "), found, source)
		assert.NotContains(t, fmt.Sprint(faults), "hunter2", "what may be a secret is not repeated")
	}
}

func TestFaultsOfTargets(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{}`:                                 "/executor required",
		`{"executor": "docker", "spec": {}}`: "/executor unknown_executor",
		`{"executor": "function"}`:           "/spec required",
		`{"executor": "function", "spec": {"nam": "f"}}`:                                                         "/spec/nam unknown_field, /spec/name required",
		`{"executor": "process", "spec": {"command": ["echo", "${body.a"]}}`:                                     "/spec/command/1 bad_expression",
		`{"executor": "process", "spec": {"command": ["echo", "${body.}"]}}`:                                     "/spec/command/1 bad_expression",
		`{"executor": "process", "spec": {"command": ["echo", "${HOME}"]}}`:                                      "/spec/command/1 unknown_variable",
		`{"executor": "process", "spec": {"command": ["echo", "${now()}"]}}`:                                     "/spec/command/1 unknown_variable",
		`{"executor": "process", "spec": {"command": ["echo", "${order.id}"]}}`:                                  "/spec/command/1 unknown_variable",
		`{"executor": "process", "spec": {"command": ["echo"], "stdn": "${body}"}}`:                              "/spec/stdn unknown_field",
		`{"executor": "process", "spec": {"command": ["echo"], "env": {"MILLRACE_X": "${body.a}"}}}`:             "/spec/env/MILLRACE_X reserved",
		`{"executor": "function", "spec": {"name": "f"}, "priority": 9}`:                                         "/priority out_of_range",
		`{"executor": "function", "spec": {"name": "f"}, "priority": "high"}`:                                    "/priority wrong_type",
		`{"executor": "function", "spec": {"name": "f"}, "priority": 0}`:                                         "/priority out_of_range",
		`{"executor": "function", "spec": {"name": "f"}, "limits": {"run": "0s", "queue": "1 day"}}`:             "/limits/queue invalid",
		`{"executor": "function", "spec": {"name": "f"}, "limits": {"run": "0s"}}`:                               "/limits/run out_of_range",
		`{"executor": "function", "spec": {"name": "f"}, "retry": {"max_attempts": 101, "tries": 1}}`:            "/retry/tries unknown_field",
		`{"executor": "function", "spec": {"name": "f"}, "retry": {"max_attempts": 101}}`:                        "/retry/max_attempts out_of_range",
		`{"executor": "function", "spec": {"name": "f"}, "requirements": {"slots": 0}}`:                          "/requirements/slots out_of_range",
		`{"executor": "function", "spec": {"name": "f"}, "not_before": "tomorrow"}`:                              "/not_before invalid",
		`{"executor": "function", "spec": {"name": "f"}, "labels": ["a"]}`:                                       "/labels wrong_type",
		`{"executor": "function", "spec": {"name": "f"}, "labels": {"a": {}}}`:                                   "/labels/a wrong_type",
		`{"executor": "function", "spec": {"name": "f"}, "concurrency_key": "` + strings.Repeat("k", 300) + `"}`: "/concurrency_key too_long",
		`{"executor": "function", "spec": {"name": "f"}, "idempotency_key": "x"}`:                                "/idempotency_key unknown_field",
		`{"executor": "process", "spec": {"script": "echo ${body.a}", "command": ["sh"]}}`:                       "~/spec/script script_injection",
		`{"executor": "process", "spec": {"command": ["bash", "-ec", "echo ${body.a}"]}}`:                        "~/spec/command/2 script_injection",
		`{"executor": "process", "spec": {"command": ["bash", "-c", "echo $1", "x", "${body.a}"]}}`:              "",
		`{"executor": "process", "spec": {"command": ["echo", "$${HOME}"]}}`:                                     "",
		`{"executor": "function", "spec": {"name": "f"}, "concurrency_key": "${key}"}`:                           "~/concurrency_key no_value",
		`{"executor": "function", "spec": {"name": "${headers['X-GitHub-Event']}"}}`:                             "~/spec/name no_value",
	} {
		found, faults := check(t, `{"id": "a", `+webhook+`, "target": {"execution": `+source+`}}`)
		for i := range found {
			found[i] = strings.Replace(found[i], "/target/execution", "", 1)
		}
		if want == "" {
			assert.Empty(t, found, source)
			continue
		}
		assert.ElementsMatch(t, strings.Split(want, ", "), found, "%s\n%v", source, faults)
	}
	for source, want := range map[string]string{
		`{}`:                                           "/target/workflow/id required",
		`{"id": "w", "version": -1}`:                   "/target/workflow/version out_of_range",
		`{"id": "w", "input": [1]}`:                    "/target/workflow/input wrong_type",
		`{"id": "w", "input": "text"}`:                 "/target/workflow/input wrong_type",
		`{"id": "w", "input": {"a": "${}"}}`:           "/target/workflow/input/a bad_expression",
		`{"id": "w", "priority": 7}`:                   "/target/workflow/priority out_of_range",
		`{"id": "w", "executor": "x"}`:                 "/target/workflow/executor unknown_field",
		`{"id": "${body.kind}", "input": {"a": null}}`: "",
	} {
		found, _ := check(t, `{"id": "a", `+webhook+`, "target": {"workflow": `+source+`}}`)
		assert.Equal(t, want, strings.Join(found, ", "), source)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id": "a", ` + kafka + `, ` + started + `}`:                                                                                                             "~/target/execution unordered_target",
		`{"id": "a", ` + kafka + `, "target": {"workflow": {"id": "w"}}}`:                                                                                         "~/target/workflow unordered_target",
		`{"id": "a", "limits": {"open": 5}, ` + kafka + `, ` + target + `}`:                                                                                       "~/limits/open no_effect",
		`{"id": "a", "limit_action": "stall", ` + kafka + `, ` + target + `}`:                                                                                     "~/limit_action no_effect",
		`{"id": "a", "limits": {"open": 5}, "limit_action": "stall", ` + kafka + `, ` + target + `}`:                                                              "",
		`{"id": "a", "kafka": {"topics": ["a"], "batch": 50}, ` + target + `}`:                                                                                    "~/kafka/batch no_effect",
		`{"id": "a", "kafka": {"topics": ["execution_events"]}, ` + target + `}`:                                                                                  "~/kafka/topics/0 own_topic",
		`{"id": "a", "kafka": {"topics": ["a"], "brokers": ["b:1"], "sasl": {"mechanism": "PLAIN", "username": "u", "password": {"file": "p"}}}, ` + target + `}`: "~/kafka/sasl plaintext",
	} {
		found, _ := check(t, text)
		assert.Equal(t, want, strings.Join(found, ", "), text)
	}
}

func TestFaultsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id": "a", "webhook": {"auth": {"bearer": "x"}}, ` + started + `}`:                                                                   "says where the secret is",
		`{"id": "a", "kafka": {"topics": ["a"], "brokers": ["a:1"], "sasl": {"mechanism": "scram_sha_512", "username": "u"}}, ` + target + `}`: "did you mean SCRAM-SHA-512?",
		`{"id": "a", "webhook": {"auth": {"bearer": {"env": "TOKEN"}}}, ` + started + `}`:                                                      "must begin with MILLRACE_TRIGGER_",
		`{"id": "a", ` + webhook + `, "target": {"execution": {"executor": "process", "spec": {"command": ["echo", "${HOME}"]}}}}`:             "the text ${HOME} is written $${HOME}",
		`{"id": "a", ` + webhook + `, "target": {"execution": {"executor": "process", "spec": {"command": ["echo", "${customer.id}"]}}}}`:      "such as body.customer",
		`{"id": "a", "kafka": {"topisc": ["a"]}, ` + target + `}`:                                                                              "did you mean topics?",
	} {
		_, faults := check(t, text)
		assert.Contains(t, strings.ReplaceAll(fmt.Sprint(faults), "must say where", "says where"), want, text)
	}
}

// TestCompileNeverPanics compiles what is only half a definition.
func TestCompileNeverPanics(t *testing.T) {
	t.Parallel()
	whole := `{"id":"a","type":"kafka","kafka":{"brokers":["a:1"],"topics":["t"],"tls":{"enabled":true,"ca":{"file":"c"}}},"webhook":{"auth":{"hmac":{"secrets":[{"env":"MILLRACE_TRIGGER_A"}]}}},` +
		`"schedule":{"cron":"@daily"},"target":{"execution":{"executor":"process","spec":{"command":["${body.a}"]},"labels":{"a":"${body.b}"}},"workflow":{"id":"w","input":{"a":"${body}"}}}}`
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(whole), &fields))
	var cut func(at map[string]any)
	cut = func(at map[string]any) {
		for name, value := range at {
			delete(at, name)
			text, err := json.Marshal(fields)
			require.NoError(t, err)
			assert.NotPanics(t, func() { check(t, string(text)) }, "%s", text)
			at[name] = value
			if inner, ok := value.(map[string]any); ok {
				cut(inner)
			}
		}
	}
	cut(fields)
}
