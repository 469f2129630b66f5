//nolint:staticcheck // deprecated features must pass through the gateway as long as they are used
package peers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// serverCheck is a check for one kind of server.
type serverCheck struct {
	name string
	do   func(*testing.T, serverClient)
}

var checkTable = map[string][]serverCheck{
	"everything": {
		{"echo", echo}, {"resources", resources}, {"templates", templates}, {"prompts", prompts},
		{"completion", completion}, {"logging", logging}, {"subscribe", subscribe}, {"progress", progress},
		{"cancellation", cancellation}, {"sampling", sampling}, {"elicitation", elicitation}, {"roots", roots},
	},
	"filesystem": {{"list", func(t *testing.T, g serverClient) {
		g.requireText(t, g.toolName("list_directory"), args{"path": g.setup.Root}, "big.txt")
	}}},
	"memory": {{"graph", func(t *testing.T, g serverClient) {
		g.requireText(t, g.toolName("read_graph"), args{}, "entities")
	}}},
}

func echo(t *testing.T, g serverClient) {
	g.requireText(t, g.toolName("echo"), args{"message": "hi — é 😀"}, "Echo: hi — é 😀")
	if got, err := g.callTool(t.Context(), g.toolName("no-such-tool"), args{}); err == nil {
		t.Errorf("an unknown tool answered %q", got)
	}
}

func resources(t *testing.T, g serverClient) {
	for r, err := range g.session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if g.setup.Gateway && serverIn(r.URI) != g.server.ID {
			continue
		}
		got, err := g.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
		if err != nil || len(got.Contents) == 0 || got.Contents[0].Text == "" || got.Contents[0].URI != r.URI {
			t.Errorf("reading %s: %v, %v", r.URI, got, err)
		}
		return
	}
	t.Error("no resources")
}

// serverIn returns the server named in a URI of the gateway (A3).
func serverIn(uri string) string {
	for _, part := range regexp.MustCompile(`[\w-]+`).FindAllString(strings.TrimPrefix(uri, "proxy://"), -1) {
		var named struct{ Server string }
		if text, err := base64.RawURLEncoding.DecodeString(part); err == nil && json.Unmarshal(text, &named) == nil {
			return named.Server
		}
	}
	return ""
}

// textTemplate returns the template of a server's text resources.
func textTemplate(t *testing.T, g serverClient) string {
	t.Helper()
	var all []string
	for r, err := range g.session.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.URITemplate)
		ours := !g.setup.Gateway || serverIn(r.URITemplate) == g.server.ID || strings.Contains(r.URITemplate, g.server.ID)
		if ours && r.MIMEType == "text/plain" && strings.Contains(r.URITemplate, "{resourceId}") {
			return r.URITemplate
		}
	}
	t.Fatalf("no template with {resourceId} of %s in %q", g.server.ID, all)
	return ""
}

func templates(t *testing.T, g serverClient) {
	uri := strings.Replace(textTemplate(t, g), "{resourceId}", "7", 1)
	got, err := g.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(got.Contents) != 1 || !strings.HasPrefix(got.Contents[0].Text, "Resource 7: ") {
		t.Errorf("%s: %v, %v", uri, got, err)
	}
}

func prompts(t *testing.T, g serverClient) {
	found := false
	for p, err := range g.session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		found = found || p.Name == g.toolName("args-prompt")
	}
	got, err := g.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: g.toolName("args-prompt"), Arguments: map[string]string{"city": "Paris"}})
	if err != nil || !found {
		t.Fatalf("listed %v, %v", found, err)
	}
	if text, ok := got.Messages[0].Content.(*mcp.TextContent); !ok || text.Text != "What's weather in Paris?" {
		t.Errorf("got %v", got.Messages[0].Content)
	}
}

func completion(t *testing.T, g serverClient) {
	prompt := &mcp.CompleteReference{Type: "ref/prompt", Name: g.toolName("completable-prompt")}
	template := &mcp.CompleteReference{Type: "ref/resource", URI: textTemplate(t, g)}
	engineering := &mcp.CompleteContext{Arguments: map[string]string{"department": "Engineering"}}
	for _, c := range []struct {
		params mcp.CompleteParams
		want   string
	}{
		{mcp.CompleteParams{Ref: prompt, Argument: mcp.CompleteParamsArgument{Name: "department", Value: "E"}}, "[Engineering]"},
		{mcp.CompleteParams{Ref: prompt, Argument: mcp.CompleteParamsArgument{Name: "name", Value: "A"}, Context: engineering}, "[Alice]"},
		{mcp.CompleteParams{Ref: template, Argument: mcp.CompleteParamsArgument{Name: "resourceId", Value: "5"}}, "[5]"},
	} {
		got, err := g.session.Complete(t.Context(), &c.params)
		if err != nil || fmt.Sprint(got.Completion.Values) != c.want {
			t.Errorf("%s: %v, %v; want %s", c.params.Argument.Name, got, err, c.want)
		}
	}
}

func logging(t *testing.T, g serverClient) {
	g.clearEvents()
	params := &mcp.CallToolParams{Name: g.toolName("toggle-simulated-logging"), Arguments: args{}}
	if g.setup.Revision == modern {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "debug"}
	} else if err := g.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.sendCall(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	// A legacy server logs per session; the call is not known.
	if g.setup.Revision == legacy || g.server.Revision == modern {
		g.waitForEvent(t, "log ")
	}
	if g.server.Revision == legacy { // it continues until it is called again
		g.requireText(t, params.Name, args{}, "Stopped")
	}
}

func subscribe(t *testing.T, g serverClient) {
	uri := strings.Replace(textTemplate(t, g), "{resourceId}", "1", 1)
	if err := g.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	g.clearEvents()
	// The Go SDK does not wait for the acknowledgment of the subscription.
	time.Sleep(200 * time.Millisecond)
	if g.setup.isBridge && g.server.Revision == legacy { // the clients of a server that asks for roots may have other processes then
		g.waitForBackgroundLog(t, "server="+g.server.ID+" requests=roots/list")
	}
	if g.requireText(t, g.toolName("toggle-subscriber-updates"), args{}, "") {
		g.waitForEvent(t, "updated "+uri)
	}
	if g.server.Revision == legacy {
		g.requireText(t, g.toolName("toggle-subscriber-updates"), args{}, "Stopped")
	}
	if err := g.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
}

// waitForBackgroundLog waits until the gateway in the background has logged a text.
func (v *sdkClient) waitForBackgroundLog(t *testing.T, text string) {
	t.Helper()
	err := wait.Until(callLimit, "the gateway did not log "+text, func() (bool, error) {
		return strings.Contains(backgroundLog(v.setup.home), text), nil
	})
	if err != nil {
		t.Error(err)
	}
}

func progress(t *testing.T, g serverClient) {
	g.clearEvents()
	params := &mcp.CallToolParams{Name: g.toolName("trigger-long-running-operation"), Arguments: args{"duration": 0.4, "steps": 4}}
	params.SetProgressToken("the-token")
	if got, err := g.sendCall(t.Context(), params); err != nil || !strings.Contains(got, "completed") {
		t.Fatalf("%q, %v", got, err)
	}
	g.waitForEvent(t, "progress 2 of 4 for the-token")
}

func cancellation(t *testing.T, g serverClient) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	const duration = 67
	got, err := g.sendCall(ctx, &mcp.CallToolParams{Name: g.toolName("trigger-long-running-operation"), Arguments: args{"duration": duration, "steps": 1}})
	if err == nil {
		t.Fatalf("a cancelled call gave %q", got)
	}
	g.requireText(t, g.toolName("echo"), args{"message": "still here"}, "still here")
	if g.server.Revision != modern {
		return
	}
	err = wait.Until(callLimit, "the server was not notified", func() (bool, error) {
		cancelled, err := g.callTool(t.Context(), g.toolName("cancelled-calls"), args{})
		return strings.Contains(cancelled, fmt.Sprint(duration)), err
	})
	if err != nil {
		t.Error(err)
	}
}

// requesterID is the server id in a server's request (A5). A modern server sends no requests: its result
// requires input.
func (g serverClient) requesterID() string {
	if g.setup.Gateway && (g.setup.Revision == legacy || g.server.Revision == legacy) {
		return g.server.ID
	}
	return ""
}

func sampling(t *testing.T, g serverClient) {
	g.clearEvents()
	if g.requireText(t, g.toolName("trigger-sampling-request"), args{"prompt": "why?", "maxTokens": 10}, "sampled by peers") {
		g.waitForEvent(t, "sampling for "+g.requesterID())
	}
}

func elicitation(t *testing.T, g serverClient) {
	g.clearEvents()
	if g.requireText(t, g.toolName("trigger-elicitation-request"), args{}, "Name: Ada") {
		g.waitForEvent(t, "elicitation for "+g.requesterID())
	}
}

func roots(t *testing.T, g serverClient) {
	g.requireText(t, g.toolName("get-roots-list"), args{}, "the-root")
}

var recoverLine = regexp.MustCompile(`\[recover: prune_id=(prn_[\w-]+) chars=\d+-\d+\]`)

// checkRecover reads a file that is too long and recovers it (G3, G+1).
func checkRecover(t *testing.T, v *sdkClient) {
	file := filepath.Join(v.setup.Root, "big.txt")
	original := string(readFile(t, file))
	masked, err := v.callTool(t.Context(), "files::read_text_file", args{"path": file})
	if err != nil || len(masked) > len(original)/10 {
		t.Fatalf("%d bytes of %d, %v", len(masked), len(original), err)
	}
	id := recoverLine.FindStringSubmatch(masked)
	if id == nil {
		t.Fatalf("no recover line in %q", truncate(masked[min(len(masked), 1900):], 500))
	}
	for _, c := range []struct {
		arguments args
		want      string
	}{
		{args{"prune_id": id[1]}, original},
		{
			args{"prune_id": id[1], "ranges": []args{{"start_line": 9999, "end_line": 20000}}, "include_line_numbers": false},
			original[strings.Index(original, "09999 "):],
		},
	} {
		got, err := v.callTool(t.Context(), "recover_text", c.arguments)
		if err != nil || strings.TrimSuffix(rawText(got), "\n") != strings.TrimSuffix(c.want, "\n") {
			t.Errorf("recover_text %v: %v; %d bytes, want %d", c.arguments, err, len(rawText(got)), len(c.want))
		}
	}
}

// rawText is the text of recover_text, in the specification's document or plain.
func rawText(text string) string {
	var document struct {
		Raw *string `json:"raw_text"`
	}
	if json.Unmarshal([]byte(text), &document) == nil && document.Raw != nil {
		return *document.Raw
	}
	return text
}
