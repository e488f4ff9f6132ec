package graphql

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	gql "github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql/schema"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// Deps is what the server needs.
type Deps struct {
	// DB is what rows are read from.
	DB     query.DB
	Logger *slog.Logger
	// Registerer takes the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// Infrastructure tells further faults of the infrastructure from bugs; those of
	// PostgreSQL are known. May be nil.
	Infrastructure func(error) bool
}

// Config holds the settings of the server.
type Config struct {
	Limits Limits
	// NoIntrospection keeps the schema from everybody. Otherwise whoever may query may
	// introspect.
	NoIntrospection bool
}

// Server answers GraphQL requests. It is safe for concurrent use. Who may send them
// is the caller's to decide: the principal comes with the request's context.
type Server struct {
	deps          Deps
	limits        Limits
	introspection bool
	executable    gql.ExecutableSchema
	documents     *documents
	metrics       *metrics
	json          strictjson.Decoder
	page          http.HandlerFunc
}

// New returns a server.
func New(deps Deps, config Config) *Server {
	limits := config.Limits.withDefaults()
	r := &resolver{
		store: query.NewStore(deps.DB, query.Limits{
			PageSize: limits.PageSize, PageSizeDefault: min(pageDefault, limits.PageSize), InValues: limits.ListLength, Timeout: limits.Timeout,
		}),
		limits: limits,
		gate:   make(chan struct{}, limits.Concurrency),
	}
	return &Server{
		deps: deps, limits: limits, introspection: !config.NoIntrospection,
		executable: schema.NewExecutableSchema(schema.Config{Schema: withoutDefer(), Resolvers: r}),
		documents:  newDocuments(),
		metrics:    newMetrics(deps.Registerer),
		page:       page(),
	}
}

// withoutDefer returns the schema without the directive of answers in pieces, which
// every schema of gqlgen's has and which no transport here can send.
func withoutDefer() *ast.Schema {
	s := *schema.NewExecutableSchema(schema.Config{}).Schema()
	s.Directives = maps.Clone(s.Directives)
	delete(s.Directives, "defer")
	return &s
}

// answer is what a request comes to.
type answer struct {
	errors gqlerror.List
	// data is nil when the request was not executed.
	data []byte
	// cost is the estimate; 0 when it was not come so far.
	cost int
}

// refused is the answer to a request that is not executed.
func refused(errs ...*gqlerror.Error) answer { return answer{errors: errs} }

// execute answers a request.
func (s *Server) execute(ctx context.Context, req request) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			a = refused(s.hidden(ctx, s.panicked(ctx, cause)))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.limits.Timeout)
	defer cancel()
	doc, errs := s.parse(req.Query)
	if errs != nil {
		return answer{errors: errs}
	}
	op, err := operation(doc, req.OperationName)
	if err != nil {
		return refused(err)
	}
	// Before the validator, some of whose rules take time by the square of the fields.
	if broken := measure(doc, op, s.limits); broken != nil {
		return refused(refusal(broken))
	}
	if broken := measureVariables(req.variables, s.limits); broken != nil {
		return refused(refusal(broken))
	}
	if errs := s.validate(req.Query, doc); errs != nil {
		return answer{errors: errs}
	}
	variables, failed := validator.VariableValues(s.executable.Schema(), op, req.variables)
	if failed != nil {
		return answer{errors: told(codeVariables, gqlerror.List{asGQL(failed)})}
	}
	a.cost = cost(doc, op, variables, s.limits)
	if a.cost > s.limits.Cost {
		a.errors = gqlerror.List{refusal(beyond(limitCost, s.limits.Cost, a.cost,
			"the answer may have %s fields: ask for shorter lists, or for less of each row", number(a.cost)))}
		return a
	}
	if !s.introspection && introspects(doc) {
		return refused(fault(codeIntrospection, "introspection is off here (graphql.introspection)"))
	}
	return s.run(ctx, req, doc, op, variables, a)
}

// parse reads a document, from memory when it has been validated before.
func (s *Server) parse(text string) (*ast.QueryDocument, gqlerror.List) {
	if doc := s.documents.get(text); doc != nil {
		return doc, nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, gqlerror.List{fault(codeBadRequest, "the request has no query")}
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, s.limits.Tokens)
	if err != nil {
		e := asGQL(err)
		if strings.HasPrefix(e.Message, "exceeded token limit") {
			return nil, gqlerror.List{refusal(beyond(limitTokens, s.limits.Tokens, s.limits.Tokens+1,
				"the document has more than %d tokens", s.limits.Tokens))}
		}
		return nil, told(codeSyntax, gqlerror.List{e})
	}
	return doc, nil
}

// operation finds what is to be executed.
func operation(doc *ast.QueryDocument, name string) (*ast.OperationDefinition, *gqlerror.Error) {
	if len(doc.Operations) == 0 {
		return nil, fault(codeBadRequest, "the document has no query")
	}
	op := doc.Operations.ForName(name)
	switch {
	case op != nil:
		if op.Operation != ast.Query {
			return nil, fault(codeValidation, "there are queries only, no %ss", op.Operation)
		}
		return op, nil
	case name == "":
		return nil, fault(codeBadRequest, "the document has several queries: say with operationName which one to run")
	}
	return nil, fault(codeBadRequest, "the document has no query named %q", clip(name))
}

func (s *Server) validate(text string, doc *ast.QueryDocument) gqlerror.List {
	if s.documents.get(text) == doc {
		return nil
	}
	if errs := validator.ValidateWithRules(s.executable.Schema(), doc, s.rules()); len(errs) > 0 {
		return told(codeValidation, errs)
	}
	s.documents.put(text, doc)
	return nil
}

// rules are those of the specification. Where the schema is kept from callers, what
// they get wrong is not mended for them: suggestions tell names.
func (s *Server) rules() *rules.Rules {
	all := rules.NewDefaultRules()
	if s.introspection {
		return all
	}
	for name, quiet := range map[string]validator.Rule{
		rules.FieldsOnCorrectTypeRule.Name: rules.FieldsOnCorrectTypeRuleWithoutSuggestions,
		rules.ValuesOfCorrectTypeRule.Name: rules.ValuesOfCorrectTypeRuleWithoutSuggestions,
		rules.KnownArgumentNamesRule.Name:  rules.KnownArgumentNamesRuleWithoutSuggestions,
		rules.KnownTypeNamesRule.Name:      rules.KnownTypeNamesRuleWithoutSuggestions,
	} {
		all.RemoveRule(name)
		all.AddRule(quiet.Name, quiet.RuleFunc)
	}
	return all
}

// run executes what has passed all checks.
func (s *Server) run(
	ctx context.Context, req request, doc *ast.QueryDocument, op *ast.OperationDefinition, variables map[string]any, a answer,
) answer {
	ctx = gql.StartOperationTrace(ctx)
	ctx = gql.WithOperationContext(ctx, &gql.OperationContext{
		RawQuery: req.Query, Variables: variables, OperationName: req.OperationName, Doc: doc, Operation: op,
		DisableIntrospection:   !s.introspection,
		RecoverFunc:            func(ctx context.Context, cause any) error { return s.panicked(ctx, cause) },
		ResolverMiddleware:     func(ctx context.Context, next gql.Resolver) (any, error) { return next(ctx) },
		RootResolverMiddleware: func(ctx context.Context, next gql.RootResolver) gql.Marshaler { return next(ctx) },
	})
	ctx = gql.WithResponseContext(ctx, s.present, func(ctx context.Context, cause any) error { return s.panicked(ctx, cause) })
	response := s.executable.Exec(ctx)(ctx)
	a.errors = slices.Concat(response.Errors, gql.GetErrors(ctx))
	a.data = bytes.TrimSpace(response.Data)
	if len(a.data) == 0 {
		a.data = []byte("null")
	}
	return a
}

// panicked logs a panic and returns the error that stands for it.
func (s *Server) panicked(ctx context.Context, cause any) error {
	s.deps.Logger.ErrorContext(ctx, "graphql resolver panicked", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return internalError{fmt.Errorf("panic: %v", cause)}
}

// introspects reports whether a document asks for the schema, in whatever part.
func introspects(doc *ast.QueryDocument) bool {
	var walk func(ast.SelectionSet) bool
	walk = func(set ast.SelectionSet) bool {
		for _, selection := range set {
			switch s := selection.(type) {
			case *ast.Field:
				if s.Name == "__schema" || s.Name == "__type" || walk(s.SelectionSet) {
					return true
				}
			case *ast.InlineFragment:
				if walk(s.SelectionSet) {
					return true
				}
			}
		}
		return false
	}
	for _, op := range doc.Operations {
		if walk(op.SelectionSet) {
			return true
		}
	}
	for _, f := range doc.Fragments {
		if walk(f.SelectionSet) {
			return true
		}
	}
	return false
}
