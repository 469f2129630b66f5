package redisserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const slots = 16384

// healthLimit is long: replicas may have to copy all data again, on a busy machine.
const healthLimit = 5 * time.Minute

// joinCluster makes a Cluster of the nodes: the first half are primaries, the others their replicas.
func (s *Server) joinCluster() error {
	half := len(s.Nodes) / 2
	first := s.Nodes[0]
	for i, n := range s.Nodes {
		if i < half {
			from, to := i*slots/half, (i+1)*slots/half-1
			if _, err := n.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
				return err
			}
		}
		if _, err := n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i > 0 {
			if _, err := n.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(first.Port), strconv.Itoa(first.busPort)); err != nil {
				return err
			}
		}
	}
	for i, n := range s.Nodes[half:] {
		id, err := s.Nodes[i].Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		err = wait.Until(startLimit, n.Name+" did not become a replica", func() (bool, error) {
			_, err := n.Do("CLUSTER", "REPLICATE", fmt.Sprint(id))
			return err == nil, nil // until it knows the other node
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Primaries returns the nodes that are primaries now, as Sentinel or the majority of the Cluster says. Only nodes that
// reply are among them.
func (s *Server) Primaries() ([]*Node, error) {
	switch s.Mode {
	case Sentinel:
		n, err := s.Primary()
		if err != nil {
			return nil, err
		}
		return []*Node{n}, nil
	case Cluster:
		return s.clusterPrimaries()
	case Single:
	}
	return s.Nodes[:1], nil
}

// Primary returns the one primary, or the first of a Cluster.
func (s *Server) Primary() (*Node, error) {
	if s.Mode != Sentinel {
		primaries, err := s.Primaries()
		if err != nil {
			return nil, err
		}
		return primaries[0], nil
	}
	var problem error
	for _, sentinel := range s.Sentinels {
		reply, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
		if err != nil {
			problem = err
			continue
		}
		if address, ok := reply.([]any); ok && len(address) == 2 {
			if n := s.nodeAt(fmt.Sprint(address[1])); n != nil {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("no Sentinel knows the primary: %w", problem)
}

func (s *Server) nodeAt(port string) *Node {
	for _, n := range s.Nodes {
		if strconv.Itoa(n.Port) == port {
			return n
		}
	}
	return nil
}

// clusterPrimaries asks a node whose view is that of the majority.
func (s *Server) clusterPrimaries() ([]*Node, error) {
	for _, n := range s.Nodes {
		if info, err := n.Info("cluster"); err != nil || info["cluster_state"] != "ok" {
			continue
		}
		reply, err := n.Do("CLUSTER", "NODES")
		if err != nil {
			continue
		}
		var out []*Node
		text, _ := reply.(string)
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 9 || !strings.Contains(f[2], "master") || strings.Contains(f[2], "fail") { // without slots it is none
				continue
			}
			address, _, _ := strings.Cut(f[1], "@")
			if p := s.nodeAt(address[strings.LastIndex(address, ":")+1:]); p != nil {
				out = append(out, p)
			}
		}
		return out, nil
	}
	return nil, errors.New("no node of the Cluster is well")
}

// ReplicasOf returns the nodes that replicate a primary.
func (s *Server) ReplicasOf(primary *Node) []*Node {
	var out []*Node
	for _, n := range s.Nodes {
		info, err := n.Info("replication")
		if err == nil && info["role"] == "slave" && info["master_port"] == strconv.Itoa(primary.Port) {
			out = append(out, n)
		}
	}
	return out
}

// Rejoin restarts a node, and under Sentinel makes it a replica of the present primary at once. After a plain Restart a
// former primary takes itself for one until Sentinel corrects it, which takes ten seconds.
func (s *Server) Rejoin(n *Node) error {
	if err := n.Restart(); err != nil || s.Mode != Sentinel {
		return err
	}
	primary, err := s.Primary()
	if err != nil || primary == n {
		return err
	}
	return wait.Until(startLimit, n.Name+" did not become a replica", func() (bool, error) {
		_, err := n.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(primary.Port))
		return err == nil, nil // until it has loaded its data
	})
}

// WaitHealthy waits until all nodes run, agree on who is primary, and every replica is connected to its primary.
func (s *Server) WaitHealthy() error {
	var problem error
	err := wait.Until(healthLimit, "redis did not become healthy", func() (bool, error) {
		problem = s.check()
		return problem == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w\n%s", err, problem, s.Logs())
	}
	return nil
}

// check says what is not well.
func (s *Server) check() error {
	primaries, err := s.Primaries()
	if err != nil {
		return err
	}
	want := map[Mode]struct{ primaries, replicas int }{Single: {1, 0}, Sentinel: {1, 2}, Cluster: {3, 1}}[s.Mode]
	if len(primaries) != want.primaries {
		return fmt.Errorf("%d primaries, want %d", len(primaries), want.primaries)
	}
	for _, p := range primaries {
		info, err := p.Info("replication")
		if err != nil {
			return err
		}
		if _, err := p.Do("DBSIZE"); err != nil { // an error while it loads
			return err
		}
		if info["role"] != "master" || info["connected_slaves"] != strconv.Itoa(want.replicas) {
			return fmt.Errorf("%s is %s with %s replicas", p.Name, info["role"], info["connected_slaves"])
		}
		replicas := s.ReplicasOf(p)
		if len(replicas) != want.replicas {
			return fmt.Errorf("%s has %d replicas", p.Name, len(replicas))
		}
		for _, r := range replicas {
			if info, err := r.Info("replication"); err != nil || info["master_link_status"] != "up" {
				return fmt.Errorf("%s: %s (%w)", r.Name, info["master_link_status"], err)
			}
		}
	}
	if s.Mode == Cluster {
		for _, n := range s.Nodes {
			info, err := n.Info("cluster")
			if err != nil {
				return err
			}
			if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != strconv.Itoa(len(s.Nodes)) || info["cluster_slots_ok"] != strconv.Itoa(slots) {
				return fmt.Errorf("%s: %v", n.Name, info)
			}
		}
	}
	return s.checkSentinels(primaries[0])
}

func (s *Server) checkSentinels(primary *Node) error {
	for _, sentinel := range s.Sentinels {
		reply, err := sentinel.Do("SENTINEL", "MASTER", MasterSet)
		if err != nil {
			return err
		}
		list, _ := reply.([]any)
		fields := map[string]string{}
		for i := 0; i+1 < len(list); i += 2 {
			fields[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
		}
		if fields["port"] != strconv.Itoa(primary.Port) || fields["flags"] != "master" || fields["num-slaves"] != strconv.Itoa(len(s.Nodes)-1) || fields["num-other-sentinels"] != strconv.Itoa(len(s.Sentinels)-1) {
			return fmt.Errorf("%s: port %s, flags %s, %s replicas, %s other sentinels", sentinel.Name, fields["port"], fields["flags"], fields["num-slaves"], fields["num-other-sentinels"])
		}
	}
	return nil
}
