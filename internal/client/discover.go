package client

import (
	"cmp"
	"net/netip"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/secret"
)

// Found says where the API is and how to be let in.
type Found struct {
	URL   string
	Token secret.Secret
}

// Discover finds address and token, each by itself: what the caller gives, else
// MILLRACE_API_URL and MILLRACE_TOKEN, else the files that a running `millrace
// up` keeps in the data directory, else URLDefault and no token. A token from the
// data directory is only used with the address from there: one that is sent to
// another server would be given away.
func Discover(url string, token secret.Secret, dataDir string, getenv func(string) string) (Found, error) {
	named := cmp.Or(url, getenv("MILLRACE_API_URL"))
	if token.IsZero() {
		token = secret.New(getenv("MILLRACE_TOKEN"))
	}
	endpoints, err := configs.ReadEndpoints(dataDir)
	if err != nil {
		return Found{}, err
	}
	local := cmp.Or(endpoints.URL, URLDefault)
	if named != "" && !sameServer(named, local) {
		return Found{URL: named, Token: token}, nil
	}
	if token.IsZero() {
		token, err = configs.ReadToken(configs.TokenFile(dataDir))
	}
	return Found{URL: cmp.Or(named, local), Token: token}, err
}

// sameServer says whether both addresses name one scheme, host and port. All
// names of this machine count as one host.
func sameServer(a, b string) bool {
	first, err := parseBase(a)
	if err != nil {
		return false
	}
	second, err := parseBase(b)
	if err != nil || first.Scheme != second.Scheme || first.Port() != second.Port() {
		return false
	}
	return first.Hostname() == second.Hostname() || isLoopback(first.Hostname()) && isLoopback(second.Hostname())
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
