// Package redisserver starts real Redis servers for tests: one server, a primary with two replicas and three Sentinels, or
// a Cluster of three primaries with a replica each. They listen on loopback ports, store their data in a temporary
// directory, and end with the test process.
//
// Path through the files: redisserver.go starts and stops a deployment, node.go one process of it, config.go writes the
// configuration files, topology.go builds a Cluster and says who is primary and whether all is well, client.go sends
// commands, certificate.go makes certificates for TLS.
package redisserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Mode is how servers are deployed.
type Mode string

// The modes.
const (
	Single   Mode = "single"   // one server
	Sentinel Mode = "sentinel" // a primary, two replicas and three Sentinels
	Cluster  Mode = "cluster"  // three primaries with a replica each
)

// MasterSet is the name of the primary that Sentinels watch.
const MasterSet = "main"

// Options change how servers run. The zero value is a server that writes every change to disk before it answers.
type Options struct {
	AppendFsync   string           // "always" (default), "everysec" or "no"; "off" is without an append-only file
	User          string           // the ACL user; empty is the default user
	Password      string           // empty is without authentication
	SentinelAuth  bool             // the Sentinels want the same user and password
	TLS           bool             // all connections are encrypted; see [Server.CAFile]
	MaxMemory     string           // such as "32mb"; then a write is refused rather than anything evicted
	FailoverAfter time.Duration    // how long a node is unreachable before it is replaced; default 1 s
	Dir           func(int) string // where a node stores its data; default a directory of its own in the temporary one
	Config        []string         // more lines for the configuration of data nodes
}

// Server is a running deployment.
type Server struct {
	Mode      Mode
	Nodes     []*Node // that store data
	Sentinels []*Node

	options Options
	dir     string
	certs   *certificates // nil without TLS
}

// Start starts a deployment for a test and waits until it is healthy. Without redis-server the test fails in CI and is
// skipped elsewhere.
func Start(tb testing.TB, mode Mode, o Options) *Server {
	tb.Helper()
	requirePrograms(tb)
	s, err := New(mode, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

var shared struct {
	sync.Mutex
	servers map[Mode]*Server
}

// Shared returns a deployment with default options that the tests of a process share, started at the first call and
// healthy at each. A test package that calls it ends with [Main].
func Shared(tb testing.TB, mode Mode) *Server {
	tb.Helper()
	requirePrograms(tb)
	shared.Lock()
	defer shared.Unlock()
	s := shared.servers[mode]
	var err error
	if s == nil {
		s, err = New(mode, Options{})
	} else {
		err = s.WaitHealthy()
	}
	if err != nil {
		tb.Fatal(err)
	}
	if shared.servers == nil {
		shared.servers = map[Mode]*Server{}
	}
	shared.servers[mode] = s
	return s
}

// Main runs the tests of a package, ends the shared deployments, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, s := range shared.servers {
		s.Close()
	}
	return code
}

func requirePrograms(tb testing.TB) {
	tb.Helper()
	for _, program := range []string{"redis-server", "redis-sentinel"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				tb.Fatal(err)
			}
			tb.Skipf("%v; install redis-server and redis-sentinel", err)
		}
	}
}

// New starts a deployment and waits until it is healthy. Its owner closes it.
func New(mode Mode, o Options) (*Server, error) {
	if o.AppendFsync == "" {
		o.AppendFsync = "always"
	}
	if o.FailoverAfter == 0 {
		o.FailoverAfter = time.Second
	}
	dir, err := os.MkdirTemp("", "redisserver")
	if err != nil {
		return nil, err
	}
	s := &Server{Mode: mode, options: o, dir: dir}
	if err := s.start(); err != nil {
		s.Close()
		return nil, fmt.Errorf("starting redis (%s): %w", mode, err)
	}
	return s, nil
}

func (s *Server) start() error {
	if s.options.TLS {
		certs, err := newCertificates(s.dir)
		if err != nil {
			return err
		}
		s.certs = certs
	}
	nodes, sentinels := 1, 0
	switch s.Mode {
	case Single:
	case Sentinel:
		nodes, sentinels = 3, 3
	case Cluster:
		nodes = 6
	default:
		return fmt.Errorf("unknown mode %q", s.Mode)
	}
	ports, err := freePorts(2*nodes + sentinels)
	if err != nil {
		return err
	}
	for i := range nodes {
		n := &Node{server: s, Name: "node" + strconv.Itoa(i), Port: ports[2*i], busPort: ports[2*i+1]}
		n.dir = filepath.Join(s.dir, n.Name)
		if s.options.Dir != nil {
			n.dir = s.options.Dir(i)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range sentinels {
		n := &Node{server: s, Name: "sentinel" + strconv.Itoa(i), Port: ports[2*nodes+i], isSentinel: true}
		n.dir = filepath.Join(s.dir, n.Name)
		s.Sentinels = append(s.Sentinels, n)
	}
	for _, n := range append(s.Nodes[:len(s.Nodes):len(s.Nodes)], s.Sentinels...) {
		if err := n.writeConfig(); err != nil {
			return err
		}
		if err := n.Restart(); err != nil {
			return err
		}
	}
	if s.Mode == Cluster {
		if err := s.joinCluster(); err != nil {
			return err
		}
	}
	return s.WaitHealthy()
}

// Close kills all processes and removes their files.
func (s *Server) Close() {
	for _, n := range append(s.Nodes[:len(s.Nodes):len(s.Nodes)], s.Sentinels...) {
		n.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

// URL is the address of the deployment for a client: one server, the Sentinels with ?master_set=, or the nodes of a
// Cluster, the first as the host and the others as ?addr=.
func (s *Server) URL() string {
	if s.Mode == Sentinel {
		addresses := addressesOf(s.Sentinels)
		return s.urlOf(addresses[0], url.Values{"master_set": {MasterSet}, "addr": addresses[1:]})
	}
	addresses := addressesOf(s.Nodes)
	return s.urlOf(addresses[0], url.Values{"addr": addresses[1:]})
}

func (s *Server) urlOf(host string, query url.Values) string {
	u := url.URL{Scheme: "redis", Host: host, RawQuery: query.Encode()}
	if s.certs != nil {
		u.Scheme = "rediss"
	}
	if s.options.Password != "" {
		u.User = url.UserPassword(s.options.User, s.options.Password)
	}
	return u.String()
}

// CAFile is the certificate of the authority that signed the servers' certificates, in PEM.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.pem") }

// FlushAll removes all data, as an operator would.
func (s *Server) FlushAll() error {
	primaries, err := s.Primaries()
	if err != nil {
		return err
	}
	for _, n := range primaries {
		if _, err := n.Do("FLUSHALL", "SYNC"); err != nil {
			return err
		}
	}
	return nil
}

// ConfigSet changes a setting of all data nodes that run.
func (s *Server) ConfigSet(key, value string) error {
	for _, n := range s.Nodes {
		if !n.IsRunning() {
			continue
		}
		if _, err := n.Do("CONFIG", "SET", key, value); err != nil {
			return err
		}
	}
	return nil
}

// Logs is the end of what each node logged.
func (s *Server) Logs() string {
	var out strings.Builder
	for _, n := range append(s.Nodes[:len(s.Nodes):len(s.Nodes)], s.Sentinels...) {
		fmt.Fprintf(&out, "%s at %s:\n%s\n", n.Name, n.Address(), n.tail(3000))
	}
	return out.String()
}

func addressesOf(nodes []*Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Address())
	}
	return out
}

// freePorts returns unused ports below those that the kernel gives to outgoing connections: a node that is down for a
// while would lose its port to one.
func freePorts(count int) ([]int, error) {
	var lc net.ListenConfig
	var ports []int
	start := 10_000 + (os.Getpid()*7919+int(time.Now().UnixNano()/1000))%20_000
	for i := 0; i < 20_000 && len(ports) < count; i++ {
		port := 10_000 + (start-10_000+i)%20_000
		l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	if len(ports) < count {
		return nil, fmt.Errorf("fewer than %d free ports", count)
	}
	return ports, nil
}
