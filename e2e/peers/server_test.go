package peers

import "testing"

// The gateway is a conforming server (A4, A13). The gateway has a second server behind it, so that lists are
// merged and calls are routed. If client and server have the same revision, nothing may fail; otherwise
// testdata/known-failures.txt lists what cannot be translated.
func TestServerConformance(t *testing.T) {
	for _, client := range []revision{legacy, modern} {
		for _, upstream := range []revision{legacy, modern} {
			for _, transport := range []string{"stdio", "http"} {
				name := client.version() + "/" + string(upstream) + "/" + transport
				t.Run(name, func(t *testing.T) { testServerConformance(t, client, upstream, transport) })
			}
		}
	}
}

// With a server that speaks both revisions, the gateway uses the client's revision, and nothing fails. Over
// HTTP the unrestricted server is stateless: it cannot send requests to a legacy client, neither through the
// gateway nor directly (TestServerSuiteDirect).
func TestServerConformanceBothRevisions(t *testing.T) {
	for _, client := range []revision{legacy, modern} {
		for _, transport := range []string{"stdio", "http with sessions", "http"} {
			t.Run(client.version()+"/"+transport, func(t *testing.T) { testServerConformance(t, client, both, transport) })
		}
	}
}

func testServerConformance(t *testing.T, client, upstream revision, transport string) {
	up := upstream.referenceServer(t, transport)
	up.ID, up.Prefix = "reference", "never"
	url := serve(t, up, server{ID: "memory", Command: npmMemory(t), Env: map[string]string{"MEMORY_FILE_PATH": t.TempDir() + "/memory.jsonl"}})
	waitForTools(t, url, "test_simple_text", "memory::read_graph")
	f := runSuite(t, "server", client, nil, "--url", url)
	var allowed map[string]string
	if client != upstream {
		allowed = knownFailures(t, client, upstream, transport)
	}
	f.requireKnownOnly(t, allowed)
}
