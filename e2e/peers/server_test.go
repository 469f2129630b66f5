package peers

import "testing"

// The gateway is a conforming server, whatever is behind it (A4, A13). Between the reference
// server and the suite stands the gateway with a second server, so that lists are merged and
// calls are routed. Where client and server are of one era, nothing may fail; where they are not,
// what one era cannot say in the other's words is in testdata/eras-known.txt.
func TestServerConformance(t *testing.T) {
	for _, client := range []era{legacy, modern} {
		for _, upstream := range []era{legacy, modern} {
			for _, transport := range []string{"stdio", "http"} {
				name := client.version() + "/" + string(upstream) + "/" + transport
				t.Run(name, func(t *testing.T) { conform(t, client, upstream, transport) })
			}
		}
	}
}

// A server that speaks both eras is spoken to in its client's: with the reference server as it comes
// behind the gateway nothing fails, whichever era the client is of. Over HTTP, as it comes, the server is
// stateless: what it cannot ask an older client through the gateway it cannot ask it directly either
// (TestServerSuiteDirect).
func TestServerConformanceBothEras(t *testing.T) {
	for _, client := range []era{legacy, modern} {
		for _, transport := range []string{"stdio", "http with sessions", "http"} {
			t.Run(client.version()+"/"+transport, func(t *testing.T) { conform(t, client, both, transport) })
		}
	}
}

func conform(t *testing.T, client, upstream era, transport string) {
	up := upstream.reference(t, transport)
	up.ID, up.Prefix = "reference", "never"
	url := serve(t, up, server{ID: "memory", Command: npmMemory(t), Env: map[string]string{"MEMORY_FILE_PATH": t.TempDir() + "/memory.jsonl"}})
	complete(t, url, "test_simple_text", "memory::read_graph")
	f := suite(t, "server", client, nil, "--url", url)
	var allowed map[string]string
	if client != upstream {
		allowed = known(t, client, upstream, transport)
	}
	f.judge(t, allowed)
}
