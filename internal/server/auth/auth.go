// Package auth says who sends a request and what they may do.
//
// A request carries a bearer token; a TokenStore knows the tokens by their
// SHA-256, so that a copy of the store opens nothing, and compares in constant
// time, so that the time of an answer tells nothing. Every route declares the
// scope that it asks for; Open is a declaration too.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/server/problem"
)

// Scope is what a route asks for and what a token allows.
type Scope string

// The scopes. The zero value is none: a route that declares no scope is a bug.
const (
	// Open asks for nothing, not even a token.
	Open Scope = "open"
	// Read allows to look: lists, histories, output, live events.
	Read Scope = "read"
	// Write allows to submit and to cancel.
	Write Scope = "write"
	// Admin allows everything.
	Admin Scope = "admin"
)

// Principal is who a token stands for.
type Principal struct {
	// Name is recorded as the user of what the principal submits and cancels.
	Name string
	// Tenant is the tenant that the principal belongs to and is confined to. Empty
	// means all tenants; what it submits then belongs to the default one.
	Tenant string
	Scopes []Scope
}

// Allows reports whether the principal may use a route of that scope.
func (p Principal) Allows(s Scope) bool {
	return s == Open || slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, Admin)
}

// Sees reports whether things of a tenant exist for the principal.
func (p Principal) Sees(tenant string) bool { return p.Tenant == "" || p.Tenant == tenant }

// Hash is the SHA-256 of a token.
type Hash [sha256.Size]byte

// HashToken returns the hash under which a TokenStore knows the token.
func HashToken(token string) Hash { return sha256.Sum256([]byte(token)) }

// TokenStore knows the tokens. It is safe for concurrent use.
type TokenStore interface {
	// Lookup returns who the token with this hash stands for. ok is false when
	// there is no such token or it has expired. An error means that it could not be
	// found out.
	Lookup(ctx context.Context, h Hash) (p Principal, ok bool, err error)
}

// Token is one entry of Static.
type Token struct {
	Hash      Hash
	Principal Principal
}

// Static is a TokenStore with a fixed list of tokens.
type Static []Token

// Lookup implements TokenStore. It compares with every entry, whichever matches.
func (s Static) Lookup(_ context.Context, h Hash) (Principal, bool, error) {
	found := -1
	for i := range s {
		if subtle.ConstantTimeCompare(s[i].Hash[:], h[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Principal{}, false, nil
	}
	return s[found].Principal, true, nil
}

// Guard checks tokens. The zero value asks for none: everybody is the principal
// Anonymous, who may do everything. That is for servers that only this machine
// reaches; see CheckExposure.
type Guard struct {
	// Tokens is nil when authentication is off.
	Tokens TokenStore
}

// Anonymous is who sends requests when authentication is off.
func Anonymous() Principal { return Principal{Name: "", Scopes: []Scope{Admin}} }

// Require wraps a handler of a route with the given scope. The request's context
// carries the principal from there on.
func (g Guard) Require(s Scope, fault func(http.ResponseWriter, *http.Request, error), next http.Handler) http.Handler {
	if s == Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, refusal, err := g.Identify(r.Context(), r.Header.Get("Authorization"))
		switch {
		case err != nil:
			fault(w, r, fmt.Errorf("check token: %w", err))
		case refusal != nil:
			problem.Write(w, r, refusal)
		case !p.Allows(s):
			refusal := problem.Forbidden().With(fmt.Sprintf("this needs the scope %q", s))
			refusal.Header = http.Header{"Www-Authenticate": {challenge + `, error="insufficient_scope", scope="` + string(s) + `"`}}
			problem.Write(w, r, refusal)
		default:
			next.ServeHTTP(w, r.WithContext(WithPrincipal(r.Context(), p)))
		}
	})
}

const challenge = `Bearer realm="millrace"`

// Identify says who sends a request with that Authorization header, or why nobody may.
// An error means that it could not be found out.
func (g Guard) Identify(ctx context.Context, header string) (Principal, *problem.Problem, error) {
	if g.Tokens == nil {
		return Anonymous(), nil, nil
	}
	if header == "" {
		return Principal{}, unauthorized("send the header Authorization: Bearer <token>", ""), nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Principal{}, unauthorized("the Authorization header is not of the form: Bearer <token>", "invalid_request"), nil
	}
	p, ok, err := g.Tokens.Lookup(ctx, HashToken(token))
	if err != nil {
		return Principal{}, nil, err
	}
	if !ok {
		return Principal{}, unauthorized("the token is not known or has expired", "invalid_token"), nil
	}
	return p, nil, nil
}

func unauthorized(detail, code string) *problem.Problem {
	p := problem.Unauthorized().With(detail)
	value := challenge
	if code != "" {
		value += `, error="` + code + `"`
	}
	p.Header = http.Header{"Www-Authenticate": {value}}
	return p
}

type principalKey struct{}

// WithPrincipal returns a context that carries the principal.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns the principal that ctx carries. Without one it is nobody, who may
// do nothing.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// IsLoopback reports whether only this machine reaches a listener on the address,
// host:port. An address without a host is all interfaces.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return LoopbackHost(host)
}

// LoopbackHost reports whether a host names this machine and nothing else.
func LoopbackHost(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}
