package topics

import (
	"embed"
	"slices"
	"sync"
)

// Type is one event type: everything that binds a CloudEvents type to a Go
// struct. A Type is read-only.
type Type struct {
	// Name is the CloudEvents type.
	Name string
	// Topic is where events of the type lie.
	Topic Topic
	// New returns a pointer to a zero event of the type, to unmarshal into.
	New func() Event
	// Example is a complete event of the type, as a struct value.
	Example Event
	// Schema is the JSON Schema (draft 2020-12) of the data. Do not change it.
	Schema []byte
	// DataSchema is the URI of Schema, which the dataschema attribute carries.
	DataSchema string
	// State is the state of the execution that the event leads to, empty when it
	// changes none.
	State string

	// schema is compiled when it is first needed, once.
	schema func() (*compiledSchema, error)
}

// catalogue lists the constructors of all types, in the order of their life.
// Each stands in the file of its type
// or of its family.
func catalogue() []Type {
	return slices.Concat([]Type{
		executionRequestedType(),
		executionQueuedType(),
		executionRejectedType(),
		executionReprioritizedType(),
		executionScheduledType(),
		executionTaskType(),
		executionStartedType(),
		executionOutputType(),
		executionRequeuedType(),
		executionCancelRequestedType(),
		executionLeaseExpiredType(),
		executionCompletedType(),
		executionFailedType(),
		executionTimedOutType(),
		executionCancelledType(),
		executionQuarantinedType(),
	}, podTypes(), sagaTypes(), sagaExchangeTypes(), scheduleTypes(), workflowLifecycleTypes(), taskLifecycleTypes())
}

//go:embed schemas/*.json
var schemaFiles embed.FS

// SchemaURI returns the stable name of the JSON Schema of an event type.
func SchemaURI(eventType string) string { return "urn:millrace:schema:" + eventType }

// newType builds the catalogue's entry of E from what its file knows. The schema
// is the file of the same name under schemas.
func newType[E Event](topic Topic, state string, example E) Type {
	name := example.EventType()
	// A type that is just being added has no file yet; a test says so.
	schema, _ := schemaFiles.ReadFile("schemas/" + name + ".json")
	return Type{
		Name:       name,
		Topic:      topic,
		New:        func() Event { return any(new(E)).(Event) },
		Example:    example,
		Schema:     schema,
		DataSchema: SchemaURI(name),
		State:      state,
		schema: sync.OnceValues(func() (*compiledSchema, error) {
			return compileSchema(SchemaURI(name), schema)
		}),
	}
}

// index is the catalogue, built once and never changed.
type index struct {
	types  []Type
	byName map[string]Type
}

var loadIndex = sync.OnceValue(func() index {
	types := catalogue()
	byName := make(map[string]Type, len(types))
	for _, t := range types {
		byName[t.Name] = t
	}
	return index{types: types, byName: byName}
})

// Types returns all event types. The caller may change the slice.
func Types() []Type { return slices.Clone(loadIndex().types) }

// Lookup returns the event type of that name and whether there is one.
func Lookup(name string) (Type, bool) {
	t, ok := loadIndex().byName[name]
	return t, ok
}
