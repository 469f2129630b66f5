package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

const eraKeys = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"ctxgate","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}`

// A13: what each era gets in its params, byte for byte. A client's own keys are never touched.
func TestDress(t *testing.T) {
	named := mcp.Client{Version: "2025-06-18", Capabilities: []byte(`{"roots": {}}`), Info: []byte(`{"name":"c"}`)}
	const theirs = `"io.modelcontextprotocol/protocolVersion":"2025-03-26","io.modelcontextprotocol/clientInfo":{"name":"evil"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"x":{}},"io.modelcontextprotocol/logLevel":"debug"`
	for name, tt := range map[string]struct {
		params   string
		changes  []jsonscan.Change
		client   mcp.Client
		progress bool
		level    string
		old, new string
	}{
		"nothing": {old: `{}`, new: `{"_meta":{` + eraKeys + `}}`},
		"params": {
			params: `{ "name" : "x", "arguments":{"n":1.50} }`,
			old:    `{ "name" : "x", "arguments":{"n":1.50} }`,
			new:    `{ "name" : "x", "arguments":{"n":1.50},"_meta":{` + eraKeys + `} }`,
		},
		"changes": {
			params:  `{"name":"a::x","proxy":{"authToken":"t"},"z":1}`,
			changes: []jsonscan.Change{{Key: "name", Value: []byte(`"x"`)}, {Key: "proxy"}},
			old:     `{"name":"x","z":1}`,
			new:     `{"name":"x","z":1,"_meta":{` + eraKeys + `}}`,
		},
		"a token of the client's": {
			params: `{"_meta":{"progressToken":"mine","com.example/k":[1.0]}}`,
			old:    `{"_meta":{"com.example/k":[1.0]}}`,
			new:    `{"_meta":{"com.example/k":[1.0],` + eraKeys + `}}`,
		},
		"a token of ours": {
			params: `{"_meta":{"com.example/k":[1.0],"progressToken":"mine","traceparent":"00-x"}}`, progress: true,
			old: `{"_meta":{"com.example/k":[1.0],"progressToken":7,"traceparent":"00-x"}}`,
			new: `{"_meta":{"com.example/k":[1.0],"progressToken":7,"traceparent":"00-x",` + eraKeys + `}}`,
		},
		"a token that was not there": {
			progress: true,
			old:      `{"_meta":{"progressToken":7}}`,
			new:      `{"_meta":{"progressToken":7,` + eraKeys + `}}`,
		},
		"nothing but a token": {
			params: `{"_meta":{"progressToken":1}}`,
			old:    `{"_meta":{}}`,
			new:    `{"_meta":{` + eraKeys + `}}`,
		},
		"the other edge's keys": {
			params: `{"_meta":{` + theirs + `,"k":1}}`, client: named, level: "warning",
			old: `{"_meta":{"k":1}}`,
			new: `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},` +
				`"io.modelcontextprotocol/clientCapabilities":{"roots": {}},"io.modelcontextprotocol/logLevel":"warning","k":1}}`,
		},
		"a level that nobody wants": {
			params: `{"_meta":{` + theirs + `}}`,
			old:    `{"_meta":{}}`,
			new:    `{"_meta":{` + eraKeys + `}}`,
		},
		"a level": {
			level: "error",
			old:   `{}`,
			new:   `{"_meta":{` + eraKeys + `,"io.modelcontextprotocol/logLevel":"error"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flight{id: 7, call: calling(mcp.ToolsCall, tt.params)}
			f.call.Changes, f.call.Client, f.call.Progress, f.call.LogLevel = tt.changes, tt.client, tt.progress, tt.level
			for hello, expect := range map[mcp.Era]string{mcp.EraLegacy: tt.old, mcp.EraModern: tt.new} {
				for range 2 { // a call that is made again is dressed again
					got := Hello{Era: hello, Version: mcp.V20260728}.dress(f)
					want(t, hello.String(), string(got), expect)
				}
			}
		})
	}
}

// A13: the greeting of the older era, to the byte.
func TestInitialize(t *testing.T) {
	const said = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s"},"instructions":"é"}}`
	for name, tt := range map[string]struct {
		client mcp.Client
		sent   string
	}{
		"of our own": {mcp.Client{}, `"capabilities":{},"clientInfo":{"name":"ctxgate","version":"1"}`},
		"of a client": {mcp.Client{Capabilities: []byte(`{"roots":{"listChanged":true}}`), Info: []byte(`{"name":"c","version":"2"}`)},
			`"capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"c","version":"2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, done := newTaped(time.Minute), make(chan error, 1)
				go func() { done <- c.initialize(t.Context(), tt.client) }()
				synctest.Wait()
				want(t, "sent", c.wire.last(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+tt.sent+`}}`)
				c.says("%s", said)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				want(t, "then", c.wire.last(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				h := c.Hello()
				want(t, "revision", h.Version, mcp.V20241105)
				want(t, "info", string(h.Info), `{"name":"s"}`)
				want(t, "instructions", h.Instructions, "é")
				want(t, "tools", h.Offers("tools"), true)
				want(t, "prompts", h.Offers("prompts"), false)
			})
		})
	}
}

// A13: greetings that are none.
func TestInitializeThatFails(t *testing.T) {
	for name, tt := range map[string]struct{ said, want string }{
		"refused":       {`"error":{"code":-32602,"message":"no"}`, "the server refused initialize: code -32602: no"},
		"revision":      {`"result":{"protocolVersion":"1999-01-01"}`, `the server speaks a revision that is not spoken here: revision "1999-01-01"`},
		"no revision":   {`"result":{}`, `the server speaks a revision that is not spoken here: revision ""`},
		"the newer era": {`"result":{"protocolVersion":"2026-07-28"}`, `the server speaks a revision that is not spoken here: revision "2026-07-28"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, done := newTaped(time.Minute), make(chan error, 1)
				go func() { done <- c.initialize(t.Context(), mcp.Client{}) }()
				synctest.Wait()
				c.says(`{"jsonrpc":"2.0","id":1,%s}`, tt.said)
				err := <-done
				if fault.KindOf(err) != fault.BadReply || err.Error() != tt.want {
					t.Errorf("got %v", err)
				}
				want(t, "sent", len(c.wire.sent), 1)
			})
		})
	}
}

// A13: only an answer of the newer era is one. Silence and any refusal mean the older; the end of
// the connection means nothing.
func TestDiscover(t *testing.T) {
	const good = `"result":{"supportedVersions":["2027-01-01","2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},` +
		`"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`
	for name, tt := range map[string]struct {
		said  string // "" for silence
		known bool
	}{
		"the newer":           {good, true},
		"another only":        {`"result":{"supportedVersions":["2027-01-01"],"capabilities":{}}`, false},
		"any result":          {`"result":{"tools":[]}`, false},
		"no result":           {`"result":null`, false},
		"not a list":          {`"result":{"supportedVersions":"2026-07-28"}`, false},
		"unknown method":      {`"error":{"code":-32601,"message":"Method not found"}`, false},
		"initialize it first": {`"error":{"code":-32002,"message":"Server not initialized"}`, false},
		"silence":             {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTaped(5 * time.Second)
				known, done := false, make(chan error, 1)
				go func() {
					var err error
					known, err = c.discover(t.Context(), mcp.Client{})
					done <- err
				}()
				synctest.Wait()
				want(t, "sent", c.wire.last(), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+eraKeys+`}}}`)
				if tt.said != "" {
					c.says(`{"jsonrpc":"2.0","id":1,%s}`, tt.said)
				}
				if err := <-done; err != nil || known != tt.known {
					t.Fatalf("got %v, %v", known, err)
				}
				if known {
					h := c.Hello()
					want(t, "info", string(h.Info), `{"name":"s"}`)
					want(t, "instructions", h.Instructions, "i")
					want(t, "tools", h.Notes("tools", "listChanged"), true)
					want(t, "subscriptions", h.Notes("resources", "subscribe"), true)
					want(t, "prompts", h.Notes("prompts", "listChanged"), false)
				}
			})
		})
	}
	t.Run("end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, done := newTaped(time.Minute), make(chan error, 1)
			go func() {
				_, err := c.discover(t.Context(), mcp.Client{})
				done <- err
			}()
			synctest.Wait()
			c.Close()
			want(t, "kind", fault.KindOf(<-done), fault.Unavailable)
		})
	})
}

// A server without a greeting has tools, as far as anybody knows.
func TestPlainOffers(t *testing.T) {
	h := Hello{plain: true}
	want(t, "tools", h.Offers("tools"), true)
	want(t, "resources", h.Offers("resources"), false)
	want(t, "no capabilities", Hello{}.Offers("tools"), false)
	want(t, "no notes", Hello{}.Notes("tools", "listChanged"), false)
	want(t, "odd capabilities", Hello{Capabilities: []byte(`{"tools":true}`)}.Notes("tools", "listChanged"), false)
}
