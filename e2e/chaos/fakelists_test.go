//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// methods is what a fake can be asked.
var methods = map[string]method{
	"initialize":               initialize,
	"server/discover":          discover,
	"ping":                     func(context.Context, *exchange) (string, error) { return "", nil },
	"logging/setLevel":         func(context.Context, *exchange) (string, error) { return "", nil },
	"tools/list":               listTools,
	"tools/call":               callTool,
	"resources/list":           listResources,
	"resources/templates/list": listTemplates,
	"resources/read":           readResource,
	"resources/subscribe":      func(_ context.Context, x *exchange) (string, error) { return x.subscribe(true) },
	"resources/unsubscribe":    func(_ context.Context, x *exchange) (string, error) { return x.subscribe(false) },
	"prompts/list":             listPrompts,
	"prompts/get":              getPrompt,
	"subscriptions/listen":     listen,
}

const capabilities = `"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{}}`

func initialize(_ context.Context, x *exchange) (string, error) {
	version := x.ProtocolVersion
	switch version {
	case "2024-11-05", "2025-03-26", "2025-06-18", string(legacy):
	default:
		version = string(legacy)
	}
	x.mu.Lock()
	x.begun = true
	x.mu.Unlock()
	return fmt.Sprintf(`"protocolVersion":%q,%s,"serverInfo":{"name":"fake","version":"1"}`, version, capabilities), nil
}

func discover(context.Context, *exchange) (string, error) {
	return fmt.Sprintf(`"supportedVersions":[%q],%s,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}`, modern, capabilities), nil
}

const schema = `{"type":"object","properties":{"nonce":{"type":"string"},"tenant":{"type":"string"},"delay_ms":{"type":"integer"},"n":{"type":"integer"},"mb":{"type":"integer"},"how":{"type":"string"},"uri":{"type":"string"},"late":{"type":"boolean"},"pad":{"type":"string"}}}`

// toolNames is the list as it is now: those that do something, then as many more as were asked for.
func (f *fake) toolNames() []string {
	names := make([]string, 0, max(len(toolOrder), f.tools))
	names = append(names, toolOrder...)
	for n := len(names); n < f.tools; n++ {
		names = append(names, fmt.Sprintf("extra_%03d", n))
	}
	return names
}

func listTools(_ context.Context, x *exchange) (string, error) {
	names := x.toolNames()
	from, to, next, err := x.cut(len(names))
	if err != nil {
		return "", err
	}
	x.fake.mu.Lock()
	changes := x.changes
	x.fake.mu.Unlock()
	var tools []string
	for _, name := range names[from:to] {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"does %s, edition %d","inputSchema":%s}`, name, name, changes, schema))
	}
	return `"tools":[` + strings.Join(tools, ",") + `]` + next, nil
}

// cut is where a page begins and ends, and the member that names the next.
func (x *exchange) cut(total int) (from, to int, next string, err error) {
	if x.Cursor != nil {
		n, bad := strconv.Atoi(strings.TrimPrefix(*x.Cursor, "from-"))
		if bad != nil || n <= 0 || n >= total {
			x.violation("a cursor that was never given: %q", *x.Cursor)
			return 0, 0, "", &refused{-32602, "no such cursor"}
		}
		from = n
	}
	if to = total; x.page > 0 && from+x.page < total {
		to = from + x.page
		next = fmt.Sprintf(`,"nextCursor":"from-%d"`, to)
	}
	return from, to, next, nil
}

const resourceURI = "file:///fake/one.txt"

func listResources(context.Context, *exchange) (string, error) {
	return fmt.Sprintf(`"resources":[{"uri":%q,"name":"one"}]`, resourceURI), nil
}

func listTemplates(context.Context, *exchange) (string, error) {
	return `"resourceTemplates":[{"uriTemplate":"file:///fake/{name}","name":"any"}]`, nil
}

func readResource(_ context.Context, x *exchange) (string, error) {
	if !strings.HasPrefix(x.URI, "file:///fake/") {
		return "", &refused{-32602, "no such resource"}
	}
	return fmt.Sprintf(`"contents":[{"uri":%s,"mimeType":"text/plain","text":%s}]`, quote(x.URI), quote(x.server+" "+x.gen)), nil
}

func listPrompts(context.Context, *exchange) (string, error) {
	return `"prompts":[{"name":"hello"}]`, nil
}

func getPrompt(_ context.Context, x *exchange) (string, error) {
	return fmt.Sprintf(`"messages":[{"role":"user","content":{"type":"text","text":%s}}]`, quote("hello from "+x.server)), nil
}

// subscribe is the legacy way to hear of a resource.
func (x *exchange) subscribe(on bool) (string, error) {
	x.fake.mu.Lock()
	delete(x.watcher.uris, x.URI)
	if on {
		x.watcher.uris[x.URI] = true
	}
	x.fake.mu.Unlock()
	if on {
		x.note(event{What: didSubscribe, Note: x.URI})
	}
	return "", nil
}

// listen is the modern way: acknowledge, tell, and answer only at the end.
func listen(ctx context.Context, x *exchange) (string, error) {
	if x.era != modern {
		return "", &refused{-32601, "no such method"}
	}
	w := &watcher{out: x.out, tools: x.Notifications.Tools, uris: map[string]bool{}, id: x.id}
	for _, uri := range x.Notifications.Resources {
		w.uris[uri] = true
		x.note(event{What: didSubscribe, Note: uri})
	}
	ack := notification("notifications/subscriptions/acknowledged", fmt.Sprintf(
		`{"_meta":{%q:%s},"notifications":{"toolsListChanged":%v,"resourceSubscriptions":%s}}`,
		metaSubscription, x.id, w.tools, toJSON(append([]string{}, x.Notifications.Resources...))))
	x.fake.mu.Lock() // nothing is told before the acknowledgment, and everything after it
	x.out.send(ack)
	x.watchers[w] = true
	x.fake.mu.Unlock()
	defer x.watch(w, false)
	<-ctx.Done()
	return "", errSilent
}
