package redis

import (
	"fmt"
	"testing"
)

// A primary whose slots another took over counts as a replica of that one from the failover until it has become one: before
// it is known to have failed, afterwards, and when it is back and does not replicate yet.
func TestClusterCountsMissingReplicas(t *testing.T) {
	const others = `b 127.0.0.1:2@12 master - 0 0 2 connected 5461-10922
c 127.0.0.1:3@13 master - 0 0 3 connected 10923-16383
d 127.0.0.1:4@14 slave b 0 0 2 connected
e 127.0.0.1:5@15 slave,fail c 0 0 3 disconnected
`
	for name, tt := range map[string]struct {
		lines string
		want  int
	}{
		"as it began":          {"a 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-5460\nf 127.0.0.1:6@16 slave a 0 0 1 connected\n", 1},
		"a replica failed":     {"a 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-5460\nf 127.0.0.1:6@16 slave,fail a 0 0 1 connected\n", 1},
		"replaced":             {"a 127.0.0.1:1@11 master,fail - 0 0 1 disconnected\nf 127.0.0.1:6@16 myself,master - 0 0 4 connected 0-5460\n", 1},
		"back, no replica yet": {"a 127.0.0.1:1@11 master - 0 0 1 connected\nf 127.0.0.1:6@16 myself,master - 0 0 4 connected 0-5460\n", 1},
		"back as a replica":    {"a 127.0.0.1:1@11 slave f 0 0 4 connected\nf 127.0.0.1:6@16 myself,master - 0 0 4 connected 0-5460\n", 1},
		"a node to be":         {"a 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-5460\nf 127.0.0.1:6@16 slave a 0 0 1 connected\ng 127.0.0.1:7@17 master - 0 0 0 connected\n", 1},
	} {
		topology, err := parseClusterNodes("txt:"+tt.lines+others, "127.0.0.1:1") // as the client returns it
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []int
		for _, p := range topology.primaries {
			got = append(got, p.required())
		}
		if fmt.Sprint(got) != fmt.Sprint([]int{tt.want, 1, 1}) {
			t.Errorf("%s: %v replicas are required, want %d and one of each other", name, got, tt.want)
		}
	}
}
