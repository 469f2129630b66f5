package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"ctxgate","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}`

// A13: the params for each protocol, to the byte. A client's own keys are never changed.
func TestEncodeParams(t *testing.T) {
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
		"nothing": {old: `{}`, new: `{"_meta":{` + modernMeta + `}}`},
		"params": {
			params: `{ "name" : "x", "arguments":{"n":1.50} }`,
			old:    `{ "name" : "x", "arguments":{"n":1.50} }`,
			new:    `{ "name" : "x", "arguments":{"n":1.50},"_meta":{` + modernMeta + `} }`,
		},
		"changes": {
			params:  `{"name":"a::x","proxy":{"authToken":"t"},"z":1}`,
			changes: []jsonscan.Change{{Key: "name", Value: []byte(`"x"`)}, {Key: "proxy"}},
			old:     `{"name":"x","z":1}`,
			new:     `{"name":"x","z":1,"_meta":{` + modernMeta + `}}`,
		},
		"a token of the client's": {
			params: `{"_meta":{"progressToken":"mine","com.example/k":[1.0]}}`,
			old:    `{"_meta":{"com.example/k":[1.0]}}`,
			new:    `{"_meta":{"com.example/k":[1.0],` + modernMeta + `}}`,
		},
		"a token of ours": {
			params: `{"_meta":{"com.example/k":[1.0],"progressToken":"mine","traceparent":"00-x"}}`, progress: true,
			old: `{"_meta":{"com.example/k":[1.0],"progressToken":7,"traceparent":"00-x"}}`,
			new: `{"_meta":{"com.example/k":[1.0],"progressToken":7,"traceparent":"00-x",` + modernMeta + `}}`,
		},
		"a token that was not there": {
			progress: true,
			old:      `{"_meta":{"progressToken":7}}`,
			new:      `{"_meta":{"progressToken":7,` + modernMeta + `}}`,
		},
		"nothing but a token": {
			params: `{"_meta":{"progressToken":1}}`,
			old:    `{"_meta":{}}`,
			new:    `{"_meta":{` + modernMeta + `}}`,
		},
		"the other edge's keys": {
			params: `{"_meta":{` + theirs + `,"k":1}}`, client: named, level: "warning",
			old: `{"_meta":{"k":1}}`,
			new: `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},` +
				`"io.modelcontextprotocol/clientCapabilities":{"roots": {}},"io.modelcontextprotocol/logLevel":"warning","k":1}}`,
		},
		"a level that no client wants": {
			params: `{"_meta":{` + theirs + `}}`,
			old:    `{"_meta":{}}`,
			new:    `{"_meta":{` + modernMeta + `}}`,
		},
		"a level": {
			level: "error",
			old:   `{}`,
			new:   `{"_meta":{` + modernMeta + `,"io.modelcontextprotocol/logLevel":"error"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &inflight{id: 7, call: newCall(mcp.ToolsCall, tt.params)}
			f.call.Changes, f.call.Client, f.call.WantsProgress, f.call.LogLevel = tt.changes, tt.client, tt.progress, tt.level
			for protocol, expect := range map[mcp.Protocol]string{mcp.Legacy: tt.old, mcp.Modern: tt.new} {
				for range 2 { // a call that is made again is dressed again
					got := Handshake{Protocol: protocol, Version: mcp.V20260728}.encodeParams(f)
					checkEqual(t, protocol.String(), string(got), expect)
				}
			}
		})
	}
}

// A13: the initialize request, to the byte.
func TestInitialize(t *testing.T) {
	const reply = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s"},"instructions":"é"}}`
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
				c, done := newTestConn(time.Minute), make(chan error, 1)
				go func() { done <- c.initialize(t.Context(), tt.client) }()
				synctest.Wait()
				checkEqual(t, "sent", c.wire.lastSent(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+tt.sent+`}}`)
				c.receive("%s", reply)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				checkEqual(t, "then", c.wire.lastSent(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				h := c.Handshake()
				checkEqual(t, "revision", h.Version, mcp.V20241105)
				checkEqual(t, "info", string(h.Info), `{"name":"s"}`)
				checkEqual(t, "instructions", h.Instructions, "é")
				checkEqual(t, "tools", h.HasCapability("tools"), true)
				checkEqual(t, "prompts", h.HasCapability("prompts"), false)
			})
		})
	}
}

// A13: replies to initialize that are no handshake.
func TestInitializeErrors(t *testing.T) {
	for name, tt := range map[string]struct{ reply, want string }{
		"refused":             {`"error":{"code":-32602,"message":"no"}`, "the server refused initialize: code -32602: no"},
		"revision":            {`"result":{"protocolVersion":"1999-01-01"}`, `the server chose a protocol revision that is not supported: revision "1999-01-01"`},
		"no revision":         {`"result":{}`, `the server chose a protocol revision that is not supported: revision ""`},
		"the modern protocol": {`"result":{"protocolVersion":"2026-07-28"}`, `the server chose a protocol revision that is not supported: revision "2026-07-28"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, done := newTestConn(time.Minute), make(chan error, 1)
				go func() { done <- c.initialize(t.Context(), mcp.Client{}) }()
				synctest.Wait()
				c.receive(`{"jsonrpc":"2.0","id":1,%s}`, tt.reply)
				err := <-done
				if fault.KindOf(err) != fault.BadReply || err.Error() != tt.want {
					t.Errorf("got %v", err)
				}
				checkEqual(t, "sent", len(c.wire.sent), 1)
			})
		})
	}
}

// A13: only a modern reply makes a server modern. Silence and any refusal mean legacy; the end of the connection means
// neither.
func TestDiscover(t *testing.T) {
	const good = `"result":{"supportedVersions":["2027-01-01","2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},` +
		`"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`
	for name, tt := range map[string]struct {
		reply string // "" for silence
		known bool
	}{
		"the modern":          {good, true},
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
				c := newTestConn(5 * time.Second)
				known, done := false, make(chan error, 1)
				go func() {
					var err error
					known, err = c.discover(t.Context(), mcp.Client{})
					done <- err
				}()
				synctest.Wait()
				checkEqual(t, "sent", c.wire.lastSent(), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+modernMeta+`}}}`)
				if tt.reply != "" {
					c.receive(`{"jsonrpc":"2.0","id":1,%s}`, tt.reply)
				}
				if err := <-done; err != nil || known != tt.known {
					t.Fatalf("got %v, %v", known, err)
				}
				if known {
					h := c.Handshake()
					checkEqual(t, "info", string(h.Info), `{"name":"s"}`)
					checkEqual(t, "instructions", h.Instructions, "i")
					checkEqual(t, "tools", h.HasSubCapability("tools", "listChanged"), true)
					checkEqual(t, "subscriptions", h.HasSubCapability("resources", "subscribe"), true)
					checkEqual(t, "prompts", h.HasSubCapability("prompts", "listChanged"), false)
				}
			})
		})
	}
	t.Run("end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, done := newTestConn(time.Minute), make(chan error, 1)
			go func() {
				_, err := c.discover(t.Context(), mcp.Client{})
				done <- err
			}()
			synctest.Wait()
			c.Close()
			checkEqual(t, "kind", fault.KindOf(<-done), fault.Unavailable)
		})
	})
}

// A server without a handshake is taken to have tools.
func TestCapabilitiesWithoutHandshake(t *testing.T) {
	h := Handshake{noHandshake: true}
	checkEqual(t, "tools", h.HasCapability("tools"), true)
	checkEqual(t, "resources", h.HasCapability("resources"), false)
	checkEqual(t, "no capabilities", Handshake{}.HasCapability("tools"), false)
	checkEqual(t, "no notes", Handshake{}.HasSubCapability("tools", "listChanged"), false)
	checkEqual(t, "invalid capabilities", Handshake{Capabilities: []byte(`{"tools":true}`)}.HasSubCapability("tools", "listChanged"), false)
}
