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

// sealed is a session's id made by hand: one that lives until then, of that subject.
func sealed(t testing.TB, subject, only string, until time.Time) string {
	t.Helper()
	s, err := seal.New(rootSecret, "session")
	if err != nil {
		t.Fatal(err)
	}
	return s.Seal([]byte(strings.Join([]string{
		"name" + subject + only, "default", subject, only, mcp.V20251125, "{}", info, strconv.FormatInt(until.Unix(), 10),
	}, "\x01")))
}

// as is a client with a session's id that it did not get from this gateway.
func (y *yard) as(t testing.TB, path, session string) *client {
	t.Helper()
	c := newClient(t, mcp.EraLegacy, "{}")
	c.yard, c.path, c.session = y, path, session
	return c
}

// A13: a session's id is sealed. It is good for its own client, at its own door, until its time;
// anything else is unknown, and the client is told to begin again.
func TestSessionTokens(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	if plain, _ := base64.RawURLEncoding.DecodeString(c.session); len(c.session) < 40 || strings.Contains(string(plain), "default") {
		t.Errorf("got %q", c.session)
	}
	last := c.session[:len(c.session)-5] + flip(c.session[len(c.session)-5:])
	hour := time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		path, session string
		status        int
	}{
		"own":              {"/mcp", c.session, 200},
		"by hand":          {"/mcp", sealed(t, "anonymous", "", hour), 200},
		"none":             {"/mcp", "", 400},
		"tampered":         {"/mcp", last, 404},
		"cut":              {"/mcp", c.session[:20], 404},
		"nonsense":         {"/mcp", "nonsense", 404},
		"of another":       {"/mcp", sealed(t, "token", "", hour), 404},
		"expired":          {"/mcp", sealed(t, "anonymous", "", time.Now().Add(-2*time.Second)), 404},
		"at another door":  {"/mcp/a", c.session, 404},
		"of another door":  {"/mcp", sealed(t, "anonymous", "a", hour), 404},
		"at its own door":  {"/mcp/a", sealed(t, "anonymous", "a", hour), 200},
		"no such server":   {"/mcp/b", sealed(t, "anonymous", "b", hour), 404},
		"of other purpose": {"/mcp", otherPurpose(t), 404},
	} {
		one := y.as(t, tt.path, tt.session)
		if g := one.call(t, mcp.ToolsList, `{}`); g.status != tt.status {
			t.Errorf("%s: status %d: %s", name, g.status, g.body)
		} else if tt.status == 404 && name != "no such server" && !strings.HasSuffix(g.body, noSession) {
			t.Errorf("%s: got %s", name, g.body)
		}
		if tt.status == 200 || tt.session == "" {
			continue
		}
		if _, end := one.listen(t); wait(t, end, "a refusal").status != 404 {
			t.Errorf("%s: a stream was opened", name)
		}
		if g := y.do(t, http.MethodDelete, tt.path, nil, http.Header{mcp.HeaderSession: {tt.session}}); g.status != 404 {
			t.Errorf("%s: DELETE: %d %s", name, g.status, g.body)
		}
	}
}

func flip(s string) string {
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
	return s.Seal([]byte("x\x01default\x01anonymous\x01\x012025-11-25\x01{}\x01{}\x0199999999999"))
}

// A13: another principal of the same gateway cannot use a session.
func TestSessionOfAnother(t *testing.T) {
	t.Parallel()
	y := start(t, nil, newFar(t, "a", mcp.EraModern, false))
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	y.apply(func(s *setup) { s.auth.Token = secret.Literal("right") })
	c.header.Set("Authorization", "Bearer right")
	if g := c.call(t, mcp.ToolsList, `{}`); g.status != 404 || !strings.HasSuffix(g.body, noSession) {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A13: any replica that shares the secret serves a session, with what its client said of itself.
func TestSessionOnAnotherReplica(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools", named("x")...))
	first, second := start(t, nil, a), start(t, nil, a)
	c := first.visit(t, "/mcp", mcp.EraLegacy, `{"roots":{"odd\u0031":1.0}}`)
	c.yard = second
	a.forget()
	if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); got != `{"content":[]}` {
		t.Errorf("got %s", got)
	}
	seen := a.await(t, mcp.ToolsCall, 1).raw
	if !strings.Contains(seen, `"`+mcp.KeyCapabilities+`":`+c.caps) || !strings.Contains(seen, `"`+mcp.KeyClientInfo+`":`+info) {
		t.Errorf("got %s", seen)
	}
	c.yard = first
	if g := c.call(t, mcp.Ping, `{}`); g.status != 200 {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A13: a client that is done says so, and its session is gone.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, false)
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	c.ask(t, mcp.Subscribe, `{"uri":"`+shownURI("a", "mem://1")+`"}`)
	if g := y.do(t, http.MethodDelete, "/mcp", nil, http.Header{mcp.HeaderSession: {c.session}}); g.status != 204 || g.body != "" {
		t.Errorf("got %d %s", g.status, g.body)
	}
	a.await(t, mcp.Unsubscribe, 1)
	if g := c.call(t, mcp.Ping, `{}`); g.status != 404 || !strings.HasSuffix(g.body, noSession) {
		t.Errorf("got %d %s", g.status, g.body)
	}
	if _, end := c.listen(t); wait(t, end, "a refusal").status != 404 {
		t.Error("a stream was opened")
	}
}

// A13: initialize is answered in the revision that was asked for, where it is one that begins so.
func TestNegotiation(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.Discover, says(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"instructions":" Say \u003chi\u003e "}`))
	y := start(t, nil, a)
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2099-01-01": "2025-11-25", "": "2025-11-25", "2026-07-28": "2025-11-25",
	} {
		for path, instructions := range map[string]string{"/mcp": `# a\nSay <hi>`, "/mcp/a": ` Say <hi> `} {
			c := newClient(t, mcp.EraLegacy, "{}")
			c.yard, c.path = y, path
			got := outcome(t, c.initialize(t, asked).body)
			if got != `{"protocolVersion":"`+want+`","capabilities":`+legacyCaps+`,"serverInfo":{"name":"ctxgate","title":"ctxgate","version":"test"},"instructions":"`+instructions+`"}` {
				t.Errorf("%s at %s: got %s", asked, path, got)
			}
			c.header.Set(mcp.HeaderVersion, want)
			if got := c.ask(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("ping: got %s", got)
			}
			if got := c.ask(t, mcp.Initialize, `{}`); got[0] == '!' { // a session more
				t.Errorf("got %s", got)
			}
		}
	}
}

// A13: what a session must not be used for.
func TestSessionRefusals(t *testing.T) {
	t.Parallel()
	y := start(t, nil, newFar(t, "a", mcp.EraModern, false))
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
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
		"GET in the newer era":         {http.MethodGet, with(mcp.HeaderVersion, mcp.V20260728), "", 405},
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
		g := y.do(t, tt.method, "/mcp", strings.NewReader(tt.body), tt.head)
		if g.status != tt.status || g.status != 202 && !strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":`) {
			t.Errorf("%s: got %d %s", name, g.status, g.body)
		}
		if tt.status == 405 && !strings.Contains(g.header.Get("Allow"), "POST") {
			t.Errorf("%s: Allow %q", name, g.header.Get("Allow"))
		}
	}
	big := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"x":"` + strings.Repeat("x", 5000) + `"}}}`
	if g := y.do(t, http.MethodPost, "/mcp", strings.NewReader(big), nil); !strings.Contains(g.body, `"code":-32602`) {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// A7, A13: a session's stream carries what belongs to no request, and what came while there was
// none; log messages as far as the session wants them.
func TestSessionStream(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newFar(t, "a", mcp.EraLegacy, stdio).on(mcp.ToolsList, page("tools", named("x")...))
		y := start(t, nil, a)
		c, loud := y.visit(t, "/mcp", mcp.EraLegacy, "{}"), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
		c.ask(t, mcp.ToolsList, `{}`)
		c.ask(t, mcp.SetLevel, `{"level":"error"}`)
		loud.ask(t, mcp.SetLevel, `{"level":"debug"}`)
		for _, one := range []*client{c, loud} { // they use the server
			one.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
		}
		say := func(text string) {
			a.push(t, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"`+text+`","data":1.0}}`)
		}
		say("error")
		say("warning")
		stop, _ := c.listen(t)
		said := func(level string) string {
			return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1.0,"_meta":{"ctxgate/server":"a"}}}`
		}
		if n := c.next(t); n.text != said("error") || n.via != "get" {
			t.Errorf("%s %s", n.via, n.text)
		}
		say("critical")
		if n := c.next(t); n.text != said("critical") || n.via != "get" {
			t.Errorf("%s %s", n.via, n.text)
		}
		a.on(mcp.ToolsList, page("tools", named("x", "y")...))
		a.push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if n := c.next(t); n.text != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
			t.Errorf("got %s", n.text)
		}
		stop()
		stopLoud, _ := loud.listen(t)
		for _, want := range []string{said("error"), said("warning"), said("critical"), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`} {
			if n := loud.next(t); n.text != want {
				t.Errorf("got %s\nwant %s", n.text, want)
			}
		}
		stopLoud()
	}
}

// A13: a stream ends when the gateway does.
func TestSessionStreamEnds(t *testing.T) {
	t.Parallel()
	y := start(t, nil, newFar(t, "a", mcp.EraModern, false))
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	_, end := c.listen(t)
	time.Sleep(50 * time.Millisecond)
	y.door.End()
	if g := wait(t, end, "the end of the stream"); g.status != 200 || g.body != "" {
		t.Errorf("got %d %s", g.status, g.body)
	}
}
