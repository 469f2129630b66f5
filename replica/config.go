package replica

import (
	"fmt"
	"net"

	"github.com/ctxgate/ctxgate/front"
)

// Config is how replicas reach each other.
type Config struct {
	// The address at which the other replicas reach this one: a listener of its own, with TLS, that accepts only
	// processes with the same secret. Requests are forwarded here that need what only this process has: a call that
	// waits for input, the session of a client of an older revision, the one process of a server with
	// replicas = "one". Needs a store that replicas share (state.driver = "redis"). Default empty: none.
	Listen string `key:"listen" reload:"restart"`

	// The host:port that the other replicas connect to. Default: the address of listen; where that has no host, the
	// first address of this machine that is not a loopback address. In Kubernetes, set CTXGATE_REPLICAS_ADVERTISE to
	// the address of the pod.
	Advertise string `key:"advertise" reload:"restart"`
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.Listen != "" {
		if err := front.CheckAddress(c.Listen); err != nil {
			problems = append(problems, fmt.Errorf("listen: %w", err))
		}
	}
	if c.Advertise != "" {
		if err := front.CheckAddress(c.Advertise); err != nil {
			problems = append(problems, fmt.Errorf("advertise: %w", err))
		} else if c.Listen == "" {
			problems = append(problems, fmt.Errorf("advertise: there is no listener: set replicas.listen"))
		}
	}
	return problems
}

// AddressFor returns the address that others connect to, of a listener that is open.
func (c Config) AddressFor(open net.Addr) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	tcp, ok := open.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return open.String()
	}
	addresses, _ := net.InterfaceAddrs() // then only this machine reaches it
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return (&net.TCPAddr{IP: n.IP, Port: tcp.Port}).String()
		}
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
}
