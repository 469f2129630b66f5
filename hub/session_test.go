package hub_test

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

const noSession = `"error":{"code":-32602,"message":"the session is unknown or has expired: initialize again","data":{"reason":"not_found","retryable":false}}}`

// sealSessionID returns a session id made by hand, with this subject and expiry.
func sealSessionID(t testing.TB, subject, only string, until time.Time) string {
	t.Helper()
	return sealSessionFrom(t, "", subject, only, until)
}

func sealSessionFrom(t testing.TB, issuer, subject, only string, until time.Time) string {
	t.Helper()
	s, err := seal.New(rootSecret, "session")
	if err != nil {
		t.Fatal(err)
	}
	return s.Seal([]byte(strings.Join([]string{
		"name" + subject + only, "default\x00" + issuer + "\x00" + subject, only, mcp.V20251125, "{}", info, strconv.FormatInt(until.Unix(), 10),
	}, "\x01")))
}

// resume returns a client with a session id that it did not get from this gateway.
func (gw *mcpGateway) resume(t testing.TB, path, session string) *client {
	t.Helper()
	c := newClient(t, mcp.Legacy, "{}")
	c.gateway, c.path, c.session = gw, path, session
	return c
}

// A13: a session's id is sealed. It is valid for its own client, at its own endpoint, until it expires; any other
// is unknown, and the client has to initialize again.
func TestSessionTokens(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	if plain, _ := base64.RawURLEncoding.DecodeString(c.session); len(c.session) < 40 || strings.Contains(string(plain), "default") {
		t.Errorf("got %q", c.session)
	}
	last := c.session[:len(c.session)-5] + flipByte(c.session[len(c.session)-5:])
	hour := time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		path, session string
		status        int
	}{
		"own":                 {"/mcp", c.session, 200},
		"by hand":             {"/mcp", sealSessionID(t, "anonymous", "", hour), 200},
		"none":                {"/mcp", "", 400},
		"tampered":            {"/mcp", last, 404},
		"cut":                 {"/mcp", c.session[:20], 404},
		"nonsense":            {"/mcp", "nonsense", 404},
		"of another":          {"/mcp", sealSessionID(t, "token", "", hour), 404},
		"of another issuer":   {"/mcp", sealSessionFrom(t, "https://idp.example.com", "anonymous", "", hour), 404},
		"expired":             {"/mcp", sealSessionID(t, "anonymous", "", time.Now().Add(-2*time.Second)), 404},
		"at another endpoint": {"/mcp/a", c.session, 404},
		"of another endpoint": {"/mcp", sealSessionID(t, "anonymous", "a", hour), 404},
		"at its own endpoint": {"/mcp/a", sealSessionID(t, "anonymous", "a", hour), 200},
		"no such server":      {"/mcp/b", sealSessionID(t, "anonymous", "b", hour), 404},
		"of other purpose":    {"/mcp", otherPurpose(t), 404},
	} {
		one := gw.resume(t, tt.path, tt.session)
		if g := one.call(t, mcp.ToolsList, `{}`); g.status != tt.status {
			t.Errorf("%s: status %d: %s", name, g.status, g.body)
		} else if tt.status == 404 && name != "no such server" && !strings.HasSuffix(g.body, noSession) {
			t.Errorf("%s: got %s", name, g.body)
		}
		if tt.status == 200 || tt.session == "" {
			continue
		}
		if _, end := one.openStream(t); receiveWithin(t, end, "a refusal").status != 404 {
			t.Errorf("%s: a stream was opened", name)
		}
		if g := gw.do(t, http.MethodDelete, tt.path, nil, http.Header{mcp.HeaderSession: {tt.session}}); g.status != 404 {
			t.Errorf("%s: DELETE: %d %s", name, g.status, g.body)
		}
	}
}

func flipByte(s string) string {
	b := []byte(s)
	for i, c := range b {
		if b[i] = 'A'; c == 'A' {
			b[i] = 'B'
		}
	}
	return string(b)
}

func otherPurpose(t testing.TB) string {
	t.Helper()
	s, err := seal.New(rootSecret, "request state")
	if err != nil {
		t.Fatal(err)
	}
	return s.Seal([]byte("x\x01default\x00\x00anonymous\x01\x012025-11-25\x01{}\x01{}\x0199999999999"))
}

// A13: another principal of the same gateway cannot use a session.
func TestSessionOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, nil, newFakeServer(t, "a", mcp.Modern, false))
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	gw.reload(func(s *setup) { s.auth.Token = secret.Literal("right") })
	c.header.Set("Authorization", "Bearer right")
	if g := c.call(t, mcp.ToolsList, `{}`); g.status != 404 || !strings.HasSuffix(g.body, noSession) {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A13: any replica with the same secret serves a session, and knows its client's capabilities and info.
func TestSessionOnAnotherReplica(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	first, second := startGateway(t, nil, a), startGateway(t, nil, a)
	c := first.connect(t, "/mcp", mcp.Legacy, `{"roots":{"odd\u0031":1.0}}`)
	c.gateway = second
	a.forgetMessages()
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got != `{"content":[]}` {
		t.Errorf("got %s", got)
	}
	seen := a.awaitMessage(t, mcp.ToolsCall, 1).raw
	if !strings.Contains(seen, `"`+mcp.MetaClientCapabilities+`":`+c.caps) || !strings.Contains(seen, `"`+mcp.MetaClientInfo+`":`+info) {
		t.Errorf("got %s", seen)
	}
	c.gateway = first
	if g := c.call(t, mcp.Ping, `{}`); g.status != 200 {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A13: a client that deletes its session ends it.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	c.callResult(t, mcp.ResourcesSubscribe, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
	if g := gw.do(t, http.MethodDelete, "/mcp", nil, http.Header{mcp.HeaderSession: {c.session}}); g.status != 204 || g.body != "" {
		t.Errorf("got %d %s", g.status, g.body)
	}
	a.awaitMessage(t, mcp.ResourcesUnsubscribe, 1)
	if g := c.call(t, mcp.Ping, `{}`); g.status != 404 || !strings.HasSuffix(g.body, noSession) {
		t.Errorf("got %d %s", g.status, g.body)
	}
	if _, end := c.openStream(t); receiveWithin(t, end, "a refusal").status != 404 {
		t.Error("a stream was opened")
	}
}

// A13: initialize is answered in the requested revision, if it is a legacy one.
func TestNegotiation(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ServerDiscover, respond(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"instructions":" Say \u003chi\u003e "}`))
	gw := startGateway(t, nil, a)
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2099-01-01": "2025-11-25", "": "2025-11-25", "2026-07-28": "2025-11-25",
	} {
		for path, instructions := range map[string]string{"/mcp": `# a\nSay <hi>`, "/mcp/a": ` Say <hi> `} {
			c := newClient(t, mcp.Legacy, "{}")
			c.gateway, c.path = gw, path
			got := resultOrError(t, c.initialize(t, asked).body)
			if got != `{"protocolVersion":"`+want+`","capabilities":`+legacyCaps+`,"serverInfo":{"name":"ctxgate","title":"ctxgate","version":"test"},"instructions":"`+instructions+`"}` {
				t.Errorf("%s at %s: got %s", asked, path, got)
			}
			c.header.Set(mcp.HeaderVersion, want)
			if got := c.callResult(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("ping: got %s", got)
			}
			if got := c.callResult(t, mcp.Initialize, `{}`); got[0] == '!' { // one more session
				t.Errorf("got %s", got)
			}
		}
	}
}

// A13: requests that a session refuses.
func TestSessionRefusals(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, nil, newFakeServer(t, "a", mcp.Modern, false))
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	held := http.Header{mcp.HeaderSession: {c.session}, "Accept": {"text/event-stream"}}
	with := func(key, value string) http.Header {
		h := held.Clone()
		h.Set(key, value)
		return h
	}
	for name, tt := range map[string]struct {
		method string
		head   http.Header
		body   string
		status int
	}{
		"GET without a session":        {http.MethodGet, http.Header{"Accept": {"text/event-stream"}}, "", 405},
		"GET of a modern client":       {http.MethodGet, with(mcp.HeaderVersion, mcp.V20260728), "", 405},
		"GET of no stream":             {http.MethodGet, with("Accept", "application/json"), "", 406},
		"DELETE without a session":     {http.MethodDelete, nil, "", 405},
		"PUT":                          {http.MethodPut, held, "", 405},
		"an unknown revision":          {http.MethodPost, with(mcp.HeaderVersion, "1999-01-01"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400},
		"no JSON":                      {http.MethodPost, held, `{`, 400},
		"no request":                   {http.MethodPost, held, `{"jsonrpc":"2.0","id":1}`, 400},
		"an array of params":           {http.MethodPost, held, `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, 200},
		"two messages at once":         {http.MethodPost, held, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400},
		"initialize as a notification": {http.MethodPost, nil, `{"jsonrpc":"2.0","method":"initialize","params":{}}`, 400},
		"an answer to nothing":         {http.MethodPost, held, `{"jsonrpc":"2.0","id":1,"result":{}}`, 202},
		"a wrong level":                {http.MethodPost, held, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`, 200},
	} {
		g := gw.do(t, tt.method, "/mcp", strings.NewReader(tt.body), tt.head)
		if g.status != tt.status || g.status != 202 && !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":`) {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
		if tt.status == 405 && !strings.Contains(g.header.Get("Allow"), "POST") {
			t.Errorf("%s: Allow %q", name, g.header.Get("Allow"))
		}
	}
	big := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"x":"` + strings.Repeat("x", 5000) + `"}}}`
	if g := gw.do(t, http.MethodPost, "/mcp", strings.NewReader(big), nil); !strings.Contains(g.body, `"code":-32602`) {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A7, A13: a session's stream carries messages that belong to no request, those that were queued before it was
// opened, too; log messages as far as the session wants them.
func TestSessionStream(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newFakeServer(t, "a", mcp.Legacy, stdio).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
		gw := startGateway(t, nil, a)
		c, loud := gw.connect(t, "/mcp", mcp.Legacy, "{}"), gw.connect(t, "/mcp", mcp.Legacy, "{}")
		c.callResult(t, mcp.ToolsList, `{}`)
		c.callResult(t, mcp.LoggingSetLevel, `{"level":"error"}`)
		loud.callResult(t, mcp.LoggingSetLevel, `{"level":"debug"}`)
		for _, one := range []*client{c, loud} { // they use the server
			one.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
		}
		broadcastLog := func(level string) {
			a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"`+level+`","data":1.0}}`)
		}
		broadcastLog("error")
		broadcastLog("warning")
		stop, _ := c.openStream(t)
		logMessage := func(level string) string {
			return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1.0,"_meta":{"ctxgate/server":"a"}}}`
		}
		if n := c.nextMessage(t); n.text != logMessage("error") || n.via != "get" {
			t.Errorf("%s %s", n.via, n.text)
		}
		broadcastLog("critical")
		if n := c.nextMessage(t); n.text != logMessage("critical") || n.via != "get" {
			t.Errorf("%s %s", n.via, n.text)
		}
		a.handle(mcp.ToolsList, listResult("tools", itemsNamed("x", "y")...))
		a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if n := c.nextMessage(t); n.text != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
			t.Errorf("got %s", n.text)
		}
		stop()
		stopLoud, _ := loud.openStream(t)
		for _, want := range []string{logMessage("error"), logMessage("warning"), logMessage("critical"), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`} {
			if n := loud.nextMessage(t); n.text != want {
				t.Errorf("got %s\nwant %s", n.text, want)
			}
		}
		stopLoud()
	}
}

// A13: a stream ends when the gateway stops.
func TestSessionStreamEnds(t *testing.T) {
	t.Parallel()
	gw := startGateway(t, nil, newFakeServer(t, "a", mcp.Modern, false))
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	_, end := c.openStream(t)
	time.Sleep(50 * time.Millisecond)
	gw.hub.EndStreams()
	if g := receiveWithin(t, end, "the end of the stream"); g.status != 200 || g.body != "" {
		t.Errorf("got %d %s", g.status, g.body)
	}
}
