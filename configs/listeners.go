package configs

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// secureListener checks an address that has the authentication and the TLS of the API.
func (v *validation) secureListener(path, address string) {
	if address == "" && path != "api.listen" {
		return
	}
	loopback, ok := v.address(path, address)
	switch {
	case !ok || loopback:
	case v.c.API.Auth.Mode == AuthOff:
		v.fault("api.auth.mode", "off is accepted on loopback addresses only, and %s is %s", path, address)
	case !v.c.API.TLS.Enabled() && !v.c.InsecureAllowRemote:
		v.fault(path, "%s can be reached from other machines, where tokens travel in the clear: set api.tls, or accept it with --insecure-allow-remote", address)
	}
}

// pair checks that a certificate and its key come together.
func (v *validation) pair(path, cert, key string) {
	if (cert == "") != (key == "") {
		v.fault(path, "cert_file and key_file must be set together")
	}
}

// openListener checks an address that has neither TLS nor authentication.
func (v *validation) openListener(path, address string) {
	loopback, ok := v.address(path, address)
	if ok && !loopback && !v.c.InsecureAllowRemote {
		v.fault(path, "%s can be reached from other machines and has neither TLS nor authentication: use a loopback address, or accept it with --insecure-allow-remote", address)
	}
}

// samePorts reports listeners that are to share an address.
func (v *validation) samePorts() {
	owner := make(map[string]string)
	listeners := [][2]string{{"api.listen", v.c.API.Listen}, {"grpc.listen", v.c.GRPC.Listen}, {"admin.listen", v.c.Admin.Listen}}
	if v.c.Embedded.Broker.Enabled {
		listeners = append(listeners, [2]string{"embedded.broker.listen", v.c.Embedded.Broker.Listen})
	}
	for _, l := range listeners {
		path, address := l[0], l[1]
		if address == "" || strings.HasSuffix(address, ":0") {
			continue
		}
		if other, taken := owner[address]; taken {
			v.fault(path, "is the same address as %s: %s", other, address)
		}
		owner[address] = path
	}
}

// address checks host:port and says whether the host is this machine only.
func (v *validation) address(path, address string) (loopback, ok bool) {
	host, err := splitAddress(address)
	if err != nil {
		v.fault(path, "%s", err)
		return false, false
	}
	return isLoopback(host), true
}

func splitAddress(address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("want host:port, not %q", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("the port of %q is not a number from 0 to 65535", address)
	} else if n == 0 && host == "" {
		return "", fmt.Errorf("want host:port, not %q", address)
	}
	return host, nil
}
