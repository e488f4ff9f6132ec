package lifecycle_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/topics"
)

// structured returns a record as engines send it: the whole event in the value.
func structured(event string) topics.Record {
	return topics.Record{Topic: "flow-lifecycle-out", Value: []byte(event), Headers: []topics.Header{
		{Key: topics.HeaderContentType, Value: []byte("application/cloudevents+json; charset=UTF-8")},
	}}
}

// event returns a structured event of that type with that data.
func event(eventType, data string) topics.Record {
	return structured(`{"specversion":"1.0","id":"e-1","source":"reference-impl","type":"` + eventType +
		`","time":"2026-05-25T22:40:10.6769Z","datacontenttype":"application/json","data":` + data + `}`)
}

func read(t *testing.T, r topics.Record) lifecycle.Event {
	t.Helper()
	e, skip, err := lifecycle.ReadRecord(r)
	require.NoError(t, err)
	require.Empty(t, skip)
	return e
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

// The section "Event Format" of requirement 000: its example, word for word.
func TestRequirement000_EventFormat(t *testing.T) {
	t.Parallel()
	e := read(t, structured(`{
  "specversion": "1.0",
  "type": "io.serverlessworkflow.workflow.started.v1",
  "source": "/workflow/executions/01KSGKY66DMS0KPPMFMMR3BJZX",
  "id": "event-123",
  "time": "2026-05-25T22:40:10.676900Z",
  "datacontenttype": "application/json",
  "data": {
    "instanceId": "01KSGKY66DMS0KPPMFMMR3BJZX",
    "workflowName": "order-processing",
    "workflowNamespace": "org.acme",
    "workflowVersion": "1.0.0",
    "status": "RUNNING",
    "startTime": "2026-05-25T19:40:10.676802-03:00",
    "lastUpdateTime": "2026-05-25T19:40:10.676802-03:00",
    "input": { "orderId": "ORD-789" }
  }
}`))
	assert.Equal(t, lifecycle.Event{
		Kind: lifecycle.Workflow, Change: lifecycle.Started, Shape: lifecycle.Flat,
		InstanceID: "01KSGKY66DMS0KPPMFMMR3BJZX", Status: topics.LifecycleRunning,
		Namespace: "org.acme", Name: "order-processing", Version: "1.0.0",
		Start: at("2026-05-25T22:40:10.676802Z"), LastUpdate: at("2026-05-25T22:40:10.676802Z"),
		Input: json.RawMessage(`{ "orderId": "ORD-789" }`),
	}, e)
}

// The section "Components" of requirement 000: which type leads to which status, for
// both processors, with and without the version, whatever the shape.
func TestRequirement000_Components_Routing(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"created": "CREATED", "started": "RUNNING", "suspended": "SUSPENDED", "resumed": "RUNNING", "completed": "COMPLETED",
		"faulted": "FAULTED", "cancelled": "CANCELLED", "retried": "RUNNING", "status-changed": "SUSPENDED",
	}
	for change, status := range want {
		for _, version := range []string{"", ".v1"} {
			for kind, data := range map[string][]string{
				"workflow": {`{"instanceId":"i","status":"SUSPENDED"}`, `{"name":"i","status":"suspended"}`},
				"task":     {`{"instanceId":"i","taskPosition":"do/0/a","status":"SUSPENDED"}`, `{"workflow":"i","task":"do/0/a","status":"Suspended"}`},
			} {
				for shape, doc := range data {
					e := read(t, event("io.serverlessworkflow."+kind+"."+change+version, doc))
					assert.Equal(t, status, e.Status, "%s.%s", kind, change)
					assert.Equal(t, lifecycle.Change(change), e.Change)
					assert.Equal(t, "i", e.InstanceID)
					assert.Equal(t, []lifecycle.Shape{lifecycle.Flat, lifecycle.Nested}[shape], e.Shape)
					assert.Equal(t, kind == "task", e.Kind == lifecycle.Task)
					assert.Equal(t, change == "resumed" || change == "retried", e.Reopens())
				}
			}
		}
	}
	for _, other := range []string{"com.example.order", "io.serverlessworkflow.workflo.started.v1", "millrace.execution.completed.v1"} {
		_, skip, err := lifecycle.ReadRecord(event(other, `{"instanceId":"i"}`))
		require.NoError(t, err)
		assert.Equal(t, lifecycle.SkipOtherType, skip)
		assert.False(t, topics.IsLifecycle(other))
	}
	for _, other := range []string{"workflow.correlation-started.v1", "workflow.correlation-completed", "task.paused.v1", "task.", "task..v1"} {
		_, skip, err := lifecycle.ReadRecord(event("io.serverlessworkflow."+other, `"not even an object"`))
		require.NoError(t, err)
		assert.Equal(t, lifecycle.SkipUnknownChange, skip, other)
	}
}

// What the Java SDK of the CNCF specification puts on the wire, with its times in
// seconds and its misspelling.
func TestTheNestedShape(t *testing.T) {
	t.Parallel()
	const definition = `"definition":{"namespace":"test","name":"greet","version":"0.1.0"}`
	e := read(t, event("io.serverlessworkflow.workflow.started.v1", `{"name":"01K","startedAt":1779748810.676802039,`+definition+`,"input":{"who":"Ada"}}`))
	assert.Equal(t, lifecycle.Event{
		Kind: lifecycle.Workflow, Change: lifecycle.Started, Shape: lifecycle.Nested, InstanceID: "01K", Status: "RUNNING",
		Namespace: "test", Name: "greet", Version: "0.1.0",
		Start: at("2026-05-25T22:40:10.676802Z"), LastUpdate: at("2026-05-25T22:40:10.676802Z"), Input: json.RawMessage(`{"who":"Ada"}`),
	}, e)

	e = read(t, event("io.serverlessworkflow.workflow.completed.v1", `{"name":"01K",`+definition+`,"completedAt":1779748811.5,"output":null}`))
	assert.Equal(t, at("2026-05-25T22:40:11.5Z"), e.End)
	assert.Equal(t, e.End, e.LastUpdate)
	assert.Zero(t, e.Start)
	assert.Nil(t, e.Output, "a null is nothing")

	e = read(t, event("io.serverlessworkflow.workflow.status-changed.v1", `{"name":"01K",`+definition+`,"updatetAt":1779748812,"status":"WAITING"}`))
	assert.Equal(t, "RUNNING", e.Status)
	assert.Equal(t, at("2026-05-25T22:40:12Z"), e.LastUpdate)
	assert.Zero(t, e.End)

	e = read(t, event("io.serverlessworkflow.task.faulted.v1", `{"workflow":"01K","task":"/do/0/greet",`+definition+`,"faultedAt":1779748813,
		"error":{"type":"https://example.org/e","status":503,"instance":"do/0/greet","title":"no","detail":null}}`))
	assert.Equal(t, lifecycle.Event{
		Kind: lifecycle.Task, Change: lifecycle.Faulted, Shape: lifecycle.Nested, InstanceID: "01K", Status: "FAULTED",
		TaskPosition: "do/0/greet", TaskName: "greet",
		End: at("2026-05-25T22:40:13Z"), LastUpdate: at("2026-05-25T22:40:13Z"),
		Error: &topics.LifecycleError{Type: "https://example.org/e", Title: "no", Status: 503, Instance: "do/0/greet"},
	}, e, "the definition of the workflow is no business of its task")
}

func TestTheFlatShapeOfATask(t *testing.T) {
	t.Parallel()
	example := topics.TaskFaulted{
		InstanceID: "i", TaskExecutionID: "x", TaskName: "charge", TaskPosition: "do/1/charge", Iteration: 2, Attempt: 1, Status: "FAULTED",
		StartTime: new(at("2026-01-02T03:04:05Z")), EndTime: new(at("2026-01-02T03:04:06Z")), LastUpdateTime: new(at("2026-01-02T03:04:07Z")),
		Input: json.RawMessage(`1`), Output: json.RawMessage(`[2]`), Error: &topics.LifecycleError{Detail: "gone", Status: 410},
	}
	env, err := topics.NewEnvelope(example)
	require.NoError(t, err)
	e := read(t, env.Record("flow-lifecycle-out", nil)) // in binary mode, as Millrace writes it
	assert.Equal(t, lifecycle.Event{
		Kind: lifecycle.Task, Change: lifecycle.Faulted, Shape: lifecycle.Flat, InstanceID: "i", Status: "FAULTED",
		TaskPosition: "do/1/charge", Iteration: 2, Attempt: 1, TaskName: "charge", TaskExecutionID: "x",
		Start: *example.StartTime, End: *example.EndTime, LastUpdate: *example.LastUpdateTime,
		Input: json.RawMessage(`1`), Output: json.RawMessage(`[2]`), Error: example.Error,
	}, e)
}

// Every example of the catalogue that is one is read, with what it says.
func TestWhatMillraceWritesIsRead(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, typ := range topics.Types() {
		env, err := topics.NewEnvelope(typ.Example, topics.WithTime(at("2026-01-02T03:04:05Z")))
		require.NoError(t, err)
		e, skip, err := lifecycle.Read(env)
		require.NoError(t, err)
		if typ.Topic != topics.FlowLifecycle {
			assert.Equal(t, lifecycle.SkipOtherType, skip)
			continue
		}
		seen++
		assert.Empty(t, skip)
		var data struct{ InstanceID, Status string }
		require.NoError(t, json.Unmarshal(env.Data, &data))
		assert.Equal(t, data.InstanceID, e.InstanceID)
		assert.Equal(t, data.Status, e.Status, typ.Name)
		assert.Equal(t, lifecycle.Final(e.Status), !e.End.IsZero(), typ.Name)
	}
	assert.Equal(t, 18, seen)
}

func TestWhatIsMissingFollowsFromTheRest(t *testing.T) {
	t.Parallel()
	now := at("2026-05-25T22:40:10.6769Z")
	e := read(t, event("io.serverlessworkflow.workflow.started", `{"instanceId":"i"}`))
	assert.Equal(t, now, e.Start)
	assert.Equal(t, now, e.LastUpdate)
	assert.Zero(t, e.End)
	e = read(t, event("io.serverlessworkflow.workflow.cancelled", `{"instanceId":"i","endTime":""}`))
	assert.Equal(t, now, e.End)
	assert.Zero(t, e.Start)
	e = read(t, event("io.serverlessworkflow.workflow.status-changed", `{"instanceId":"i","status":"COMPLETED"}`))
	assert.Zero(t, e.End, "a change of status does not say when it ended: completed does")

	for position, want := range map[string]string{
		"/do/0/greet": "do/0/greet", "do/0/greet": "do/0/greet", "#/do/0/greet": "do/0/greet", "//do/0": "do/0", "greet": "greet", "do/0/a~1b/": "do/0/a~1b/",
	} {
		e := read(t, event("io.serverlessworkflow.task.started", `{"workflow":"i","task":"`+position+`"}`))
		assert.Equal(t, want, e.TaskPosition)
	}
	for position, want := range map[string]string{
		"do/0/greet": "greet", "do/2/loop/for/do/10/a~1b~0c": "a/b~c", "do/0/try/catch": "try", "do": "", "do/0": "", "do/0/": "",
		"do/0/lines/do": "lines", "do/0/check/do/do": "check", "do/0/both/branch": "both", "do/0/both/branch/0/pack/do/1/seal": "seal",
	} {
		e := read(t, event("io.serverlessworkflow.task.started", `{"workflow":"i","task":"`+position+`"}`))
		assert.Equal(t, want, e.TaskName, position)
	}
}

// Version 7.13 of the SDK.
func TestARetryThatIsCalledAStart(t *testing.T) {
	t.Parallel()
	e := read(t, event("io.serverlessworkflow.task.started.v1", `{"workflow":"i","task":"do/0/pay","retriedAt":1795272854.741}`))
	assert.Equal(t, lifecycle.Retried, e.Change)
	assert.True(t, e.Reopens())
	assert.Equal(t, "RUNNING", e.Status)
	assert.Equal(t, time.Unix(1795272854, 741_000_000).UTC(), e.Start)
	assert.Equal(t, e.Start, e.LastUpdate)
	assert.Equal(t, lifecycle.Started, read(t, event("io.serverlessworkflow.task.started.v1", `{"workflow":"i","task":"p","startedAt":1}`)).Change)
}

func TestWhatIsReadLeniently(t *testing.T) {
	t.Parallel()
	e := read(t, event("io.serverlessworkflow.workflow.faulted", `{"instanceId":42,"workflowVersion":1.0,"INSTANCEID":"no","status":"nonsense",
		"error":"it broke","name":"not the id","extra":{"instanceId":"neither"},"input":null}`))
	assert.Equal(t, "42", e.InstanceID)
	assert.Equal(t, "1.0", e.Version)
	assert.Equal(t, "FAULTED", e.Status, "the type decides")
	assert.Equal(t, &topics.LifecycleError{Detail: "it broke"}, e.Error)
	e = read(t, event("io.serverlessworkflow.task.faulted", `{"instanceId":"i","taskPosition":"p","iteration":"3","attempt":2.0,"error":{"status":"503","more":[1]}}`))
	assert.Equal(t, []int{3, 2, 503}, []int{e.Iteration, e.Attempt, e.Error.Status})
	e = read(t, event("io.serverlessworkflow.workflow.started", `{"instance\u0049d":"i"}`))
	assert.Equal(t, "i", e.InstanceID, "an escape in a name is that character")
}

// The words that engines have for a status.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"created": "CREATED", "PENDING": "CREATED", "RUNNING": "RUNNING", "ACTIVE": "RUNNING", "waiting": "RUNNING", "SUSPENDED": "SUSPENDED",
		"COMPLETED": "COMPLETED", "FAULTED": "FAULTED", "FAILED": "FAULTED", "cancelled": "CANCELLED", "CANCELED": "CANCELLED",
	} {
		got, ok := lifecycle.ParseStatus(word)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	_, ok := lifecycle.ParseStatus("done")
	assert.False(t, ok)
}

// Every defect has a stable code. docs/data-index.md lists them; a test there compares.
func TestDefects(t *testing.T) {
	t.Parallel()
	const started, task = "io.serverlessworkflow.workflow.started.v1", "io.serverlessworkflow.task.started.v1"
	long := strings.Repeat("x", lifecycle.MaxKeyBytes+1)
	header := func(key, value string) topics.Header { return topics.Header{Key: key, Value: []byte(value)} }
	binary := func(data string, change ...topics.Header) topics.Record {
		headers := []topics.Header{
			header("ce_specversion", "1.0"), header("ce_id", "e"), header("ce_source", "s"), header("ce_type", started),
			header("ce_time", "2026-05-25T22:40:10Z"), header("content-type", "application/json"),
		}
		for _, c := range change {
			for i := range headers {
				if headers[i].Key == c.Key {
					headers[i] = c
				}
			}
		}
		return topics.Record{Value: []byte(data), Headers: headers}
	}
	for name, c := range map[string]struct {
		record      topics.Record
		code, field string
	}{
		"nothing":               {topics.Record{}, topics.CodeNotCloudEvent, ""},
		"some text":             {topics.Record{Value: []byte("hello")}, topics.CodeNotCloudEvent, ""},
		"a bare document":       {topics.Record{Value: []byte(`{"instanceId":"i"}`)}, topics.CodeMissingAttribute, "specversion"},
		"a truncated event":     {structured(`{"specversion":"1.0","id":`), topics.CodeMalformedJSON, "id"},
		"no id":                 {structured(`{"specversion":"1.0","source":"s","type":"` + started + `"}`), topics.CodeMissingAttribute, "id"},
		"no type":               {structured(`{"specversion":"1.0","source":"s","id":"i"}`), topics.CodeMissingAttribute, "type"},
		"no source":             {structured(`{"specversion":"1.0","id":"i","type":"` + started + `"}`), topics.CodeMissingAttribute, "source"},
		"an old specversion":    {structured(`{"specversion":"0.3","id":"i","source":"s","type":"` + started + `"}`), topics.CodeUnsupportedSpecVersion, "specversion"},
		"no time":               {structured(`{"specversion":"1.0","id":"i","source":"s","type":"` + started + `","data":{"instanceId":"i"}}`), topics.CodeMissingAttribute, "time"},
		"a time of its own":     {structured(`{"specversion":"1.0","id":"i","source":"s","type":"` + started + `","time":"now"}`), topics.CodeInvalidTime, "time"},
		"an attribute twice":    {structured(`{"specversion":"1.0","id":"i","id":"j"}`), topics.CodeDuplicateAttribute, "id"},
		"a long id":             {structured(`{"specversion":"1.0","id":"` + long + `","source":"s","type":"` + started + `"}`), topics.CodeAttributeTooLong, "id"},
		"Avro":                  {topics.Record{Value: []byte("x"), Headers: []topics.Header{header("content-type", "application/cloudevents+avro")}}, topics.CodeUnsupportedFormat, "datacontenttype"},
		"binary without time":   {binary(`{"instanceId":"i"}`, header("ce_time", "")), topics.CodeMissingAttribute, "time"},
		"data that is text":     {binary(`hello`, header("content-type", "text/plain")), topics.CodeUnsupportedContentType, "datacontenttype"},
		"data that is no UTF-8": {binary("{\"instanceId\":\"\xff\"}"), topics.CodeInvalidUTF8, ""},
		"data that is no JSON":  {binary(`{"instanceId":`), topics.CodeMalformedJSON, "data"},
		"data too deep":         {binary(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)), topics.CodeMalformedJSON, "data"},
		"both forms of data":    {structured(`{"specversion":"1.0","id":"i","source":"s","type":"t","data":1,"data_base64":"MQ=="}`), topics.CodeDataConflict, "data_base64"},
		"base64 that is none":   {structured(`{"specversion":"1.0","id":"i","source":"s","type":"t","data_base64":"?"}`), topics.CodeInvalidBase64, "data_base64"},
		"a bad attribute":       {structured(`{"specversion":"1.0","id":{},"source":"s","type":"t"}`), topics.CodeInvalidAttribute, "id"},

		"another version":         {event("io.serverlessworkflow.workflow.started.v2", `{"instanceId":"i"}`), lifecycle.CodeUnsupportedTypeVersion, "type"},
		"another version still":   {event("io.serverlessworkflow.task.started.v1.beta", `{}`), lifecycle.CodeUnsupportedTypeVersion, "type"},
		"no data":                 {binary(""), lifecycle.CodeMissingData, "data"},
		"data that is null":       {event(started, `null`), lifecycle.CodeMissingData, "data"},
		"data that is a list":     {event(started, `[]`), topics.CodeInvalidData, "data"},
		"a field twice":           {event(started, `{"instanceId":"i","instanceId":"j"}`), topics.CodeAmbiguousField, "data"},
		"no instance":             {event(started, `{"workflowName":"w"}`), lifecycle.CodeMissingInstance, "/name"},
		"no instance of a task":   {event(task, `{"task":"do/0/a"}`), lifecycle.CodeMissingInstance, "/workflow"},
		"an empty instance":       {event(started, `{"instanceId":""}`), lifecycle.CodeMissingInstance, "/instanceId"},
		"no position":             {event(task, `{"instanceId":"i"}`), lifecycle.CodeMissingTaskPosition, "/taskPosition"},
		"a position of nothing":   {event(task, `{"workflow":"i","task":"/"}`), lifecycle.CodeMissingTaskPosition, "/task"},
		"no status":               {event("io.serverlessworkflow.task.status-changed.v1", `{"instanceId":"i","taskPosition":"p"}`), lifecycle.CodeInvalidStatus, "/status"},
		"a strange status":        {event("io.serverlessworkflow.workflow.status-changed.v1", `{"name":"i","status":"meditating"}`), lifecycle.CodeInvalidStatus, "/status"},
		"a time without offset":   {event(started, `{"instanceId":"i","startTime":"2026-05-25T19:40:10"}`), lifecycle.CodeInvalidTimestamp, "/startTime"},
		"a time that is a list":   {event(started, `{"name":"i","startedAt":[2026,5,25]}`), lifecycle.CodeInvalidField, "/startedAt"},
		"a time out of range":     {event(started, `{"name":"i","startedAt":1e30}`), lifecycle.CodeInvalidTimestamp, "/startedAt"},
		"a name that is a list":   {event(started, `{"instanceId":"i","workflowName":[]}`), lifecycle.CodeInvalidField, "/workflowName"},
		"an id that is an object": {event(started, `{"instanceId":{}}`), lifecycle.CodeInvalidField, "/instanceId"},
		"a bad definition":        {event(started, `{"name":"i","definition":"greet"}`), lifecycle.CodeInvalidField, "/definition"},
		"a bad namespace":         {event(started, `{"name":"i","definition":{"namespace":{}}}`), lifecycle.CodeInvalidField, "/definition/namespace"},
		"a negative iteration":    {event(task, `{"instanceId":"i","taskPosition":"p","iteration":-1}`), lifecycle.CodeInvalidField, "/iteration"},
		"half an attempt":         {event(task, `{"instanceId":"i","taskPosition":"p","attempt":1.5}`), lifecycle.CodeInvalidField, "/attempt"},
		"too many iterations":     {event(task, `{"instanceId":"i","taskPosition":"p","iteration":2147483648}`), lifecycle.CodeInvalidField, "/iteration"},
		"a status of an error":    {event(started, `{"instanceId":"i","error":{"status":"bad"}}`), lifecycle.CodeInvalidField, "/error/status"},
		"a list as error":         {event(started, `{"instanceId":"i","error":[]}`), lifecycle.CodeInvalidField, "/error"},
		"a long instance id":      {event(started, `{"instanceId":"`+long+`"}`), lifecycle.CodeUnusableKey, "/instanceId"},
		"a long position":         {event(task, `{"workflow":"i","task":"`+long+`"}`), lifecycle.CodeUnusableKey, "/task"},
		"a NUL in an id":          {event(started, `{"name":"a\u0000b"}`), lifecycle.CodeUnusableKey, "/name"},
	} {
		_, skip, err := lifecycle.ReadRecord(c.record)
		assert.Empty(t, skip, name)
		var defect *topics.DecodeError
		if !assert.ErrorAs(t, err, &defect, name) {
			continue
		}
		assert.Equal(t, c.code, defect.Code, name)
		assert.Equal(t, c.field, defect.Field, name)
		require.ErrorIs(t, err, topics.ErrMalformed)
		assert.Less(t, len(err.Error()), 300, "%s: an error repeats no value", name)
	}
}

func FuzzRead(f *testing.F) {
	for _, typ := range topics.Types() {
		if typ.Topic == topics.FlowLifecycle {
			data, err := json.Marshal(typ.Example)
			require.NoError(f, err)
			f.Add(typ.Name, data)
		}
	}
	f.Add("io.serverlessworkflow.workflow.started.v1", []byte(`{"name":"i","definition":{"name":"n"},"startedAt":1779748810.676802039}`))
	f.Add("io.serverlessworkflow.task.faulted", []byte(`{"workflow":"i","task":"/do/0/x","error":{"status":5e2,"title":"\ud800"},"input":"\u0000"}`))
	f.Fuzz(func(t *testing.T, eventType string, data []byte) {
		env := topics.Envelope{ID: "1", Source: "s", Type: eventType, Time: at("2026-05-25T22:40:10Z"), Data: data}
		e, skip, err := lifecycle.Read(env)
		if err != nil {
			var defect *topics.DecodeError
			require.ErrorAs(t, err, &defect)
			require.NotEmpty(t, defect.Code)
			require.Zero(t, e)
			return
		}
		if skip != "" {
			require.Zero(t, e)
			return
		}
		require.NotEmpty(t, e.InstanceID)
		require.NotEmpty(t, e.Status)
		require.NotContains(t, e.InstanceID+e.TaskPosition, "\x00")
		require.Equal(t, e.Kind == lifecycle.Task, e.TaskPosition != "")
		require.False(t, e.LastUpdate.IsZero())
		for _, doc := range []json.RawMessage{e.Input, e.Output} {
			require.True(t, doc == nil || json.Valid(doc))
		}
		again, _, err := lifecycle.Read(env)
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
