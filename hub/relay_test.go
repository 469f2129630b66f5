package hub_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/upstream"
)

// The id comes back as the client wrote it, however the server spells it.
func TestG1IDComesBackAsItWasSent(t *testing.T) {
	for _, tt := range []struct{ sent, spelled string }{
		{`1`, `1`},
		{`"1"`, `"1"`},
		{`1.0`, `1.0`},
		{`1.0`, `1`},
		{`9007199254740993`, `9007199254740993`},
		{`9007199254740993`, `9007199254740992`}, // as a server writes it that reads numbers as doubles
		{`"\u0061"`, `"\u0061"`},
		{`"\u0061"`, `"a"`},
		{`"é\/"`, `"\u00e9/"`},
		{`""`, `""`},
		{`null`, `null`},
		{`-0`, `-0`},
		{`-0`, `0`},
		{`1e2`, `1e2`},
		{`1e2`, `100`},
	} {
		for _, shape := range []string{
			`{"jsonrpc":"2.0","id":%s,"result":{"id":77}}`,
			`{"result": {"text": "` + strings.Repeat("x", 50) + `"}, "jsonrpc": "2.0" , "id" : %s }`,
			`{"error":{"code":1,"message":"no","data":"` + strings.Repeat("x", 50) + `"},"id":%s,"jsonrpc":"2.0"}`,
		} {
			up := rpcServerReplying(t, fmt.Sprintf(shape, tt.spelled))
			g := startRPCGateway(t, up.URL, maskWithoutRecoverLine)
			got := g.post(t, "a", `{"jsonrpc":"2.0","id":`+tt.sent+`,"method":"m"}`)
			want := masked(fmt.Sprintf(shape, tt.sent))
			if got.status != http.StatusOK || got.body != want {
				t.Errorf("id %s answered as %s: got %d %s, want 200 %s", tt.sent, tt.spelled, got.status, got.body, want)
			}
			g.Close()
			up.Close()
		}
	}
}

// masked returns a string of 50 x as maskWithoutRecoverLine leaves it.
func masked(s string) string {
	return strings.ReplaceAll(s, strings.Repeat("x", 50),
		`xxxx\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=50 head=4 tail=4] ...\nxxxx`)
}

// A server that cannot read the request answers an error without an id; the client still gets its own.
func TestG1ErrorWithIDNull(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"},"id":null}`)
	g := startRPCGateway(t, up.URL, nil)
	for _, id := range []string{`1`, `"1"`, `1.0`, `9007199254740993`, `"\u0061"`, `null`, `-0`, `1e2`} {
		got := g.post(t, "a", `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`)
		want := `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"},"id":` + id + `}`
		if got.status != http.StatusOK || got.body != want {
			t.Errorf("got %d %s, want 200 %s", got.status, got.body, want)
		}
	}
}

func TestG1NotificationIsAccepted(t *testing.T) {
	const message = "\n{ \"method\" :\t\"notifications/x\", \"params\":{\"n\":1.50,\"s\":\"\\u0061\\/\"},\"jsonrpc\":\"2.0\" }\n"
	for name, up := range map[string]*rpcServer{
		"accepted":  rpcServerWith(t, http.StatusAccepted, "", ""),
		"answered":  rpcServerReplying(t, `{"jsonrpc":"2.0","id":null,"result":{}}`),
		"an error":  rpcServerWith(t, http.StatusInternalServerError, "text/html", "<h1>no</h1>"),
		"very long": rpcServerReplying(t, strings.Repeat("x", 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			g := startRPCGateway(t, up.URL, nil)
			got := g.post(t, "a", message)
			if got.status != http.StatusAccepted || got.body != "" {
				t.Errorf("got %d %q, want 202 and no body", got.status, got.body)
			}
			if reqs := up.requests(); len(reqs) != 1 || reqs[0].body != message || reqs[0].path != "/rpc" {
				t.Errorf("the server got %+v, want the message verbatim", reqs)
			}
		})
	}
}

func TestG1NotificationToServerThatIsDown(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	got := g.post(t, "a", `{"jsonrpc":"2.0","method":"notifications/x"}`)
	if got.status != http.StatusAccepted || got.body != "" {
		t.Errorf("got %d %q, want 202 and no body", got.status, got.body)
	}
}

// The server gets the client's bytes: no re-encoding, no reordering.
func TestG2RequestBytesAreForwarded(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	g := startRPCGateway(t, up.URL, nil)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`,
		" \r\n\t{ \"method\" : \"m\" ,\n\"id\":1 , \"jsonrpc\" : \"2.0\"}\n\n",
		`{"jsonrpc":"\u0032.0","id":1,"method":"tools\/call","params":{"name":"t","arguments":{"z":1,"a":2,"n":12345678901234567890.10,"e":1E+2}}}`,
		`{"unknown":{"deep":[[],{}]},"jsonrpc":"2.0","id":1,"method":"m","params":[null,-0,"😀\ud83d\ude00"]}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"s":"` + strings.Repeat("long ", 50_000) + `"}}`,
	} {
		if got := g.post(t, "a", body); got.status != http.StatusOK {
			t.Errorf("%.60s: got %d %s", body, got.status, got.body)
		}
		reqs := up.requests()
		if got := reqs[len(reqs)-1]; got.body != body || got.method != http.MethodPost || got.path != "/rpc" {
			t.Errorf("the server got %s %s %.200q, want POST /rpc %.200q", got.method, got.path, got.body, body)
		}
	}
}

func TestG2BaseURLAndHeaders(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	for base, want := range map[string]string{
		up.URL:                      "/rpc",
		up.URL + "/":                "/rpc",
		up.URL + "//":               "/rpc",
		up.URL + "/deep/base":       "/deep/base/rpc",
		up.URL + "/deep/base/":      "/deep/base/rpc",
		up.URL + "/sp%20ace/%2Fb/":  "/sp%20ace/%2Fb/rpc",
		up.URL + "/api/mcp-gateway": "/api/mcp-gateway/rpc",
	} {
		g := startRPCGateway(t, "", func(s *setup) {
			s.upstream.Servers = []upstream.ServerConfig{{ID: "a", RPC: secret.URL(base), Headers: map[string]secret.Text{
				"Authorization": secret.Parse("Bearer hush"), "x-team": secret.Parse("core"),
			}}}
		})
		client := http.Header{"Authorization": {"Bearer of-the-client"}, "X-Other": {"x"}, "Cookie": {"c=1"}}
		got := g.do(t, http.MethodPost, rpcPath("a"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`), client)
		if got.status != http.StatusOK {
			t.Errorf("%s: got %d %s", base, got.status, got.body)
		}
		reqs := up.requests()
		last := reqs[len(reqs)-1]
		if last.path != want {
			t.Errorf("%s: asked for %s, want %s", base, last.path, want)
		}
		for name, value := range map[string]string{
			"Authorization": "Bearer hush", "X-Team": "core", "Content-Type": "application/json",
			"Accept": "application/json", "X-Other": "", "Cookie": "", "Accept-Encoding": "",
		} {
			if got := last.header.Get(name); got != value {
				t.Errorf("%s: header %s is %q, want %q", base, name, got, value)
			}
		}
	}
}

// Everything but a masked string is forwarded byte for byte.
func TestG4RestIsVerbatim(t *testing.T) {
	for _, reply := range []string{
		"\r\n { \"result\" : {\"z\":1.50, \"a\":12345678901234567890,\"e\":1E+02,\"m\":-0.0,\t\"s\":\"\\/\\u0041\\b\"}\n, \"x-unknown\":[ ], \"jsonrpc\":\"2.0\", \"id\":1 } \n",
		`{"result":[{"a":"` + strings.Repeat("x", 50) + `"},{"b":[1.0,"` + strings.Repeat("x", 50) + `", 2.50]},"\/",null],"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":1.0,"` + strings.Repeat("k", 60) + `":"short"}}`,
		`{"meta":"` + strings.Repeat("m", 60) + `","jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 50) + `"}`,
		`{"jsonrpc":"2.0","id":1,"error":{"message":"` + strings.Repeat("m", 60) + `","code":-1.0,"data":{"d":"` + strings.Repeat("x", 50) + `"}}}`,
		`{"jsonrpc":"2.0","id":1,"error":null,"result":"\ud83d\ude00é"}`,
		`{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"jsonrpc":"2.0","id":1,"result":"exactly twenty chars"}`,
	} {
		up := rpcServerReplying(t, reply)
		got := startRPCGateway(t, up.URL, maskWithoutRecoverLine).post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`)
		if want := masked(reply); got.status != http.StatusOK || got.body != want {
			t.Errorf("got %d\n%q, want 200\n%q", got.status, got.body, want)
		}
		if got.header.Get("Content-Type") != "application/json" || got.header.Get("Content-Length") != fmt.Sprint(len(got.body)) {
			t.Errorf("headers %v for %d bytes", got.header, len(got.body))
		}
	}
}

// The servers are one list in the configuration; another server is another entry.
func TestG6ServerTable(t *testing.T) {
	up := map[string]*rpcServer{}
	for _, id := range []string{"one", "two.x", "three_3-c"} {
		up[id] = rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":"`+id+`"}`)
	}
	var table []upstream.ServerConfig
	for _, id := range []string{"one", "two.x"} {
		table = append(table, upstream.ServerConfig{ID: id, RPC: secret.URL(up[id].URL)})
	}
	before := startRPCGateway(t, "", func(s *setup) { s.upstream.Servers = table })
	after := startRPCGateway(t, "", func(s *setup) {
		s.upstream.Servers = append(table, upstream.ServerConfig{ID: "three_3-c", RPC: secret.URL(up["three_3-c"].URL)})
	})
	for id, p := range up {
		want := `{"jsonrpc":"2.0","id":1,"result":"` + id + `"}`
		if got := after.post(t, id, `{"jsonrpc":"2.0","id":1,"method":"m"}`); got.body != want {
			t.Errorf("%s: got %s, want %s", id, got.body, want)
		}
		if n := len(p.requests()); n != 1 {
			t.Errorf("%s got %d requests, want 1", id, n)
		}
	}
	if got := before.post(t, "three_3-c", `{"jsonrpc":"2.0","id":1,"method":"m"}`); got.status != http.StatusNotFound {
		t.Errorf("a server that is not in the table: got %d %s", got.status, got.body)
	}
}
