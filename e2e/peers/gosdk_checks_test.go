//nolint:staticcheck // what is deprecated must pass the gateway as long as it is spoken
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
)

// station is something to try at a server of one kind.
type station struct {
	name string
	do   func(*testing.T, guest)
}

var stations = map[string][]station{
	"everything": {
		{"echo", echo}, {"resources", resources}, {"templates", templates}, {"prompts", prompts},
		{"completion", completion}, {"logging", logging}, {"subscribe", subscribe}, {"progress", progress},
		{"cancellation", cancellation}, {"sampling", sampling}, {"elicitation", elicitation}, {"roots", roots},
	},
	"filesystem": {{"list", func(t *testing.T, g guest) {
		g.says(t, g.own("list_directory"), args{"path": g.world.Root}, "big.txt")
	}}},
	"memory": {{"graph", func(t *testing.T, g guest) {
		g.says(t, g.own("read_graph"), args{}, "entities")
	}}},
}

func echo(t *testing.T, g guest) {
	g.says(t, g.own("echo"), args{"message": "hi — é 😀"}, "Echo: hi — é 😀")
	if got, err := g.call(t.Context(), g.own("no-such-tool"), args{}); err == nil {
		t.Errorf("an unknown tool answered %q", got)
	}
}

func resources(t *testing.T, g guest) {
	for r, err := range g.session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if g.world.Gateway && serverIn(r.URI) != g.at.ID {
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

// serverIn is the server that a URI of the gateway names (A3).
func serverIn(uri string) string {
	for _, part := range regexp.MustCompile(`[\w-]+`).FindAllString(strings.TrimPrefix(uri, "proxy://"), -1) {
		var named struct{ Server string }
		if text, err := base64.RawURLEncoding.DecodeString(part); err == nil && json.Unmarshal(text, &named) == nil {
			return named.Server
		}
	}
	return ""
}

// textTemplate is the template of the text resources of a server.
func textTemplate(t *testing.T, g guest) string {
	t.Helper()
	var all []string
	for r, err := range g.session.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.URITemplate)
		ours := !g.world.Gateway || serverIn(r.URITemplate) == g.at.ID || strings.Contains(r.URITemplate, g.at.ID)
		if ours && r.MIMEType == "text/plain" && strings.Contains(r.URITemplate, "{resourceId}") {
			return r.URITemplate
		}
	}
	t.Fatalf("no template with {resourceId} of %s in %q", g.at.ID, all)
	return ""
}

func templates(t *testing.T, g guest) {
	uri := strings.Replace(textTemplate(t, g), "{resourceId}", "7", 1)
	got, err := g.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(got.Contents) != 1 || !strings.HasPrefix(got.Contents[0].Text, "Resource 7: ") {
		t.Errorf("%s: %v, %v", uri, got, err)
	}
}

func prompts(t *testing.T, g guest) {
	found := false
	for p, err := range g.session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		found = found || p.Name == g.own("args-prompt")
	}
	got, err := g.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: g.own("args-prompt"), Arguments: map[string]string{"city": "Paris"}})
	if err != nil || !found {
		t.Fatalf("listed %v, %v", found, err)
	}
	if text, ok := got.Messages[0].Content.(*mcp.TextContent); !ok || text.Text != "What's weather in Paris?" {
		t.Errorf("got %v", got.Messages[0].Content)
	}
}

func completion(t *testing.T, g guest) {
	prompt := &mcp.CompleteReference{Type: "ref/prompt", Name: g.own("completable-prompt")}
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

func logging(t *testing.T, g guest) {
	g.forget()
	params := &mcp.CallToolParams{Name: g.own("toggle-simulated-logging"), Arguments: args{}}
	if g.world.Era == modern {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "debug"}
	} else if err := g.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.send(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	// A server of before 2026-07-28 logs for a session; no rule says whose call it was for.
	if g.world.Era == legacy || g.at.Era == modern {
		g.listened(t, "log ")
	}
	if g.at.Era == legacy { // it goes on until it is told again
		g.says(t, params.Name, args{}, "Stopped")
	}
}

func subscribe(t *testing.T, g guest) {
	uri := strings.Replace(textTemplate(t, g), "{resourceId}", "1", 1)
	if err := g.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	g.forget()
	// The Go SDK does not wait for the server's word that the subscription holds.
	time.Sleep(200 * time.Millisecond)
	if g.says(t, g.own("toggle-subscriber-updates"), args{}, "") {
		g.listened(t, "updated "+uri)
	}
	if g.at.Era == legacy {
		g.says(t, g.own("toggle-subscriber-updates"), args{}, "Stopped")
	}
	if err := g.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
}

func progress(t *testing.T, g guest) {
	g.forget()
	params := &mcp.CallToolParams{Name: g.own("trigger-long-running-operation"), Arguments: args{"duration": 0.4, "steps": 4}}
	params.SetProgressToken("the-token")
	if got, err := g.send(t.Context(), params); err != nil || !strings.Contains(got, "completed") {
		t.Fatalf("%q, %v", got, err)
	}
	g.listened(t, "progress 2 of 4 for the-token")
}

func cancellation(t *testing.T, g guest) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	const duration = 67
	got, err := g.send(ctx, &mcp.CallToolParams{Name: g.own("trigger-long-running-operation"), Arguments: args{"duration": duration, "steps": 1}})
	if err == nil {
		t.Fatalf("a cancelled call gave %q", got)
	}
	g.says(t, g.own("echo"), args{"message": "still here"}, "still here")
	if g.at.Era != modern {
		return
	}
	err = within(callLimit, "the server did not learn of it", func() (bool, error) {
		told, err := g.call(t.Context(), g.own("cancelled-calls"), args{})
		return strings.Contains(told, fmt.Sprint(duration)), err
	})
	if err != nil {
		t.Error(err)
	}
}

// asker is who asks, as the client is told (A5). A modern server does not start a request: it
// answers one that names it.
func (g guest) asker() string {
	if g.world.Gateway && (g.world.Era == legacy || g.at.Era == legacy) {
		return g.at.ID
	}
	return ""
}

func sampling(t *testing.T, g guest) {
	g.forget()
	if g.says(t, g.own("trigger-sampling-request"), args{"prompt": "why?", "maxTokens": 10}, "sampled by peers") {
		g.listened(t, "sampling for "+g.asker())
	}
}

func elicitation(t *testing.T, g guest) {
	g.forget()
	if g.says(t, g.own("trigger-elicitation-request"), args{}, "Name: Ada") {
		g.listened(t, "elicitation for "+g.asker())
	}
}

func roots(t *testing.T, g guest) { g.says(t, g.own("get-roots-list"), args{}, "the-root") }

var recoverLine = regexp.MustCompile(`\[recover: prune_id=(prn_[\w-]+) chars=\d+-\d+\]`)

// recovers reads a file that is far too long, and reads it back: G3, G+1.
func recovers(t *testing.T, v *visitor) {
	file := filepath.Join(v.world.Root, "big.txt")
	original := string(read(t, file))
	masked, err := v.call(t.Context(), "files::read_text_file", args{"path": file})
	if err != nil || len(masked) > len(original)/10 {
		t.Fatalf("%d bytes of %d, %v", len(masked), len(original), err)
	}
	id := recoverLine.FindStringSubmatch(masked)
	if id == nil {
		t.Fatalf("no recover line in %q", cut(masked[min(len(masked), 1900):], 500))
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
		got, err := v.call(t.Context(), "recover_text", c.arguments)
		if err != nil || strings.TrimSuffix(rawText(got), "\n") != strings.TrimSuffix(c.want, "\n") {
			t.Errorf("recover_text %v: %v; %d bytes, want %d", c.arguments, err, len(rawText(got)), len(c.want))
		}
	}
}

// rawText is the text recover_text gives back: in the document of the specification, or as it is.
func rawText(text string) string {
	var document struct {
		Raw *string `json:"raw_text"`
	}
	if json.Unmarshal([]byte(text), &document) == nil && document.Raw != nil {
		return *document.Raw
	}
	return text
}
