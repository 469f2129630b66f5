package redisserver

import (
	"fmt"
	"os"
	"strings"
)

// writeConfig writes the node's first configuration. Sentinel and Cluster rewrite theirs.
func (n *Node) writeConfig() error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	lines := n.networkLines()
	if n.isSentinel {
		lines = append(lines, n.sentinelLines()...)
	} else {
		lines = append(lines, n.dataLines()...)
	}
	return os.WriteFile(n.configPath(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (n *Node) networkLines() []string {
	lines := []string{"bind 127.0.0.1", "protected-mode no", "daemonize no", "dir " + n.dir}
	certs := n.server.certs
	if certs == nil {
		return append(lines, fmt.Sprint("port ", n.Port))
	}
	return append(lines, "port 0", fmt.Sprint("tls-port ", n.Port), "tls-cert-file "+certs.certFile, "tls-key-file "+certs.keyFile,
		"tls-ca-cert-file "+certs.caFile, "tls-auth-clients no", "tls-replication yes", "tls-cluster yes")
}

// authLines let the client's user in and nobody else.
func (o Options) authLines() []string {
	switch {
	case o.Password == "":
		return nil
	case o.User == "":
		return []string{"requirepass " + o.Password}
	}
	return []string{"user " + o.User + " on >" + o.Password + " ~* &* +@all", "user default off"}
}

func (n *Node) dataLines() []string {
	o := n.server.options
	lines := append(o.authLines(),
		`save ""`, "repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1", "repl-backlog-size 64mb",
		"enable-debug-command yes")
	if o.AppendFsync == "off" {
		lines = append(lines, "appendonly no")
	} else {
		lines = append(lines, "appendonly yes", "appendfsync "+o.AppendFsync)
	}
	if o.MaxMemory != "" {
		lines = append(lines, "maxmemory "+o.MaxMemory, "maxmemory-policy noeviction")
	}
	if o.Password != "" {
		lines = append(lines, "masterauth "+o.Password)
		if o.User != "" {
			lines = append(lines, "masteruser "+o.User)
		}
	}
	switch n.server.Mode {
	case Sentinel:
		if first := n.server.Nodes[0]; n != first {
			lines = append(lines, fmt.Sprint("replicaof 127.0.0.1 ", first.Port))
		}
	case Cluster:
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf", fmt.Sprint("cluster-port ", n.busPort),
			fmt.Sprint("cluster-node-timeout ", o.FailoverAfter.Milliseconds()), "cluster-allow-replica-migration no",
			"cluster-replica-validity-factor 0")
	case Single:
	}
	return append(lines, o.Config...)
}

func (n *Node) sentinelLines() []string {
	o := n.server.options
	lines := []string{
		fmt.Sprint("sentinel monitor ", MasterSet, " 127.0.0.1 ", n.server.Nodes[0].Port, " 2"),
		fmt.Sprint("sentinel down-after-milliseconds ", MasterSet, " ", o.FailoverAfter.Milliseconds()),
		"sentinel failover-timeout " + MasterSet + " 3000",
		"sentinel parallel-syncs " + MasterSet + " 2",
	}
	if o.Password == "" {
		return lines
	}
	lines = append(lines, "sentinel auth-pass "+MasterSet+" "+o.Password)
	if o.User != "" {
		lines = append(lines, "sentinel auth-user "+MasterSet+" "+o.User)
	}
	if o.SentinelAuth {
		lines = append(lines, o.authLines()...)
		lines = append(lines, "sentinel sentinel-pass "+o.Password)
		if o.User != "" {
			lines = append(lines, "sentinel sentinel-user "+o.User)
		}
	}
	return lines
}
