package prunerd

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/rpc"
)

// refusal writes errors as the gateway's endpoints do, for the kinds that these tests need.
func refusal(w http.ResponseWriter, r *http.Request, err error) {
	id, _ := front.ErrorContext(r.Context()).(rpc.ID)
	code := map[fault.Kind]int{fault.Syntax: -32700, fault.InvalidRequest: -32600, fault.NotFound: -32001, fault.TooLarge: -31413, fault.Unauthorized: -31401}[fault.KindOf(err)]
	w.WriteHeader(front.HTTPStatus(fault.KindOf(err)))
	_, _ = w.Write(rpc.AppendError(nil, id, code, fault.PublicOf(err), ""))
}

// serve puts a server behind the middleware chain.
func serve(t *testing.T, s *Server, token string) string {
	t.Helper()
	g := gate.New(gate.Deps{Authenticator: auth.New(auth.Config{Token: secret.Literal(token)})})
	limits := front.Default().HTTP
	limits.MaxRequestBytes = 1 << 20
	endpoint := Endpoint{Gate: g, HTTP: limits, Refuse: refusal, MaxDepth: 128}
	h := front.Wrap(s.Handler(endpoint), front.Chain(g, front.NewGuard("127.0.0.1:0", front.HTTP{}), limits, nil, refusal, AcceptsTokenInBody)...)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func post(t *testing.T, url, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (int, string, http.Header) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// P1: every method.
func TestP1Methods(t *testing.T) {
	s, _ := open(t, nil)
	url := serve(t, s, "") + "/rpc"
	for _, tt := range []struct{ request, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{`{"jsonrpc":"2.0","id":"\u0061 1","method":"ping","params":{}}`, `{"jsonrpc":"2.0","id":"\u0061 1","result":{}}`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"result":{}}`},
		{`{"jsonrpc":"2.0","id":1.50,"method":"resources/list"}`, `{"jsonrpc":"2.0","id":1.50,"result":{"resources":[]}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/templates/list","params":{"cursor":"x"}}`, `{"jsonrpc":"2.0","id":1,"result":{"resourceTemplates":[]}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, `{"jsonrpc":"2.0","id":1,"result":{"prompts":[]}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","clientInfo":{"name":"x","version":"1"},"capabilities":{}}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{"listChanged":false}},"serverInfo":{"name":"mcp-pruner","title":"ctxgate pruner","version":"test"}}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/delete"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: tools/delete"}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: name: there is no tool \"nothing\"","data":{"code":"invalid_params","argument":"name"}}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: name: is missing","data":{"code":"invalid_params","argument":"name"}}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: name: is missing","data":{"code":"invalid_params","argument":"name"}}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":3}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params: name: must be a string","data":{"code":"invalid_params","argument":"name"}}}`},
		{`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":"prn_x","ranges":[],"include_line_numbers":true}}}`,
			`{"jsonrpc":"2.0","id":12,"error":{"code":-32004,"message":"prune_id_not_found","data":{"code":"prune_id_not_found","prune_id":"prn_x"}}}`},
	} {
		if status, body, h := post(t, url, tt.request); status != 200 || body != tt.want || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d\n%s\nwant\n%s", tt.request, status, body, tt.want)
		}
	}
	for asked, want := range map[string]string{"2025-11-25": "2025-11-25", "2024-11-05": "2024-11-05", "1999-01-01": "2025-11-25"} {
		if _, body, _ := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+asked+`"}}`); !strings.Contains(body, `"protocolVersion":"`+want+`"`) {
			t.Errorf("%s: %s", asked, body)
		}
	}
	_, body, _ := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Result.Tools) != 3 {
		t.Errorf("tools/list: %v %s", err, body)
	}
}

// Any notification is accepted and gets no reply.
func TestP1Notifications(t *testing.T) {
	s, _ := open(t, nil)
	url := serve(t, s, "") + "/rpc"
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"prune_text"}}`,
	} {
		if status, got, _ := post(t, url, body); status != 202 || got != "" {
			t.Errorf("%s: got %d %q", body, status, got)
		}
	}
}

// G5, I7: an invalid request gets a JSON-RPC error, with its id if that can be read.
func TestI7StrictEnvelope(t *testing.T) {
	s, _ := open(t, nil)
	base := serve(t, s, "")
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{`, 400, `"id":null,"error":{"code":-32700`},
		{``, 400, `"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} x`, 400, `"id":null,"error":{"code":-32700`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}", 400, `"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\ud800"}}`, 400, `"code":-32700`},
		{`[]`, 400, `"id":null,"error":{"code":-32600`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":7,"method":"ping"}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"result":{}}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","Method":"x"}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":3}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"health","arguments":{"a":1,"a":2}}}`, 400, `"id":7,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`, 400, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("x", 1<<20) + `"}`, 413, `"code":-31413`},
	} {
		if status, body, _ := post(t, base+"/rpc", tt.body); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%.100s: got %d %.200s, want %d %s", tt.body, status, body, tt.status, tt.want)
		}
	}
	for path, want := range map[string]int{"/rpc": 405, "/": 404, "/health": 404} {
		req, _ := http.NewRequest(http.MethodGet, base+path, nil)
		if status, body, _ := do(t, req); status != want || !strings.Contains(body, `"error"`) {
			t.Errorf("GET %s: got %d %s", path, status, body)
		}
	}
	if status, _, _ := post(t, base+"/rpc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page of another origin: got %d", status)
	}
}

// A8: a configured token is required, in the header or in the message.
func TestA8Token(t *testing.T) {
	s, _ := open(t, nil)
	url := serve(t, s, "hush") + "/rpc"
	with := func(proxy string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + proxy + `}}`
	}
	for _, tt := range []struct {
		body, bearer string
		want         int
	}{
		{with(``), "", 401}, {with(``), "wrong", 401}, {with(``), "hush", 200},
		{with(`"proxy":{"authToken":"hush"}`), "", 200}, {with(`"proxy":{"authToken":"wrong"}`), "", 401},
		{with(`"proxy":{"authToken":"wrong"}`), "hush", 401}, {with(`"proxy":{}`), "", 401}, {with(`"proxy":3`), "", 401}, {with(`"proxy":{}`), "hush", 200},
		{`{`, "", 401}, {`{"jsonrpc":"2.0","method":"ping"}`, "", 401},
	} {
		var headers []string
		if tt.bearer != "" {
			headers = []string{"Authorization", "Bearer " + tt.bearer}
		}
		status, body, h := post(t, url, tt.body, headers...)
		if status != tt.want || status == 401 && (h.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(body, `"id":null`)) {
			t.Errorf("%s with %q: got %d %s", tt.body, tt.bearer, status, body)
		}
	}
}

// P13: tool, method and GET /health return the specification's document.
func TestP13Health(t *testing.T) {
	s, _ := open(t, nil)
	url := serve(t, s, "") + "/rpc"
	w := httptest.NewRecorder()
	s.Health(w, httptest.NewRequest(http.MethodGet, "/health", nil))
	_, method, _ := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"health"}`)
	raw, err := s.Call(t.Context(), "t", "health", nil)
	if err != nil {
		t.Fatal(err)
	}
	var tool json.RawMessage
	result(t, raw, &tool)
	var reply struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(method), &reply); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"GET /health": w.Body.Bytes(), "method": reply.Result, "tool": tool} {
		var h struct {
			Status, Server, Version, Timestamp string
			Capabilities                       []string
		}
		if err := json.Unmarshal(body, &h); err != nil {
			t.Fatalf("%s: %v %s", name, err, body)
		}
		at, err := time.Parse(time.RFC3339, h.Timestamp)
		if h.Status != "healthy" || h.Server != "mcp-pruner" || h.Version != "test" || strings.Join(h.Capabilities, " ") != "prune_text recover_text annotations markers" ||
			err != nil || time.Since(at).Abs() > time.Minute || strings.HasSuffix(h.Timestamp, "Z") {
			t.Errorf("%s: %s", name, body)
		}
	}
	if got := string(s.health(time.Date(2026, 2, 26, 13, 0, 0, 0, time.FixedZone("", 3600)))); !strings.Contains(got, `"timestamp":"2026-02-26T13:00:00+01:00"`) {
		t.Error(got)
	}
}
