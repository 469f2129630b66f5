package chat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openai"
)

func TestRoot(t *testing.T) {
	for base, want := range map[string]string{
		"https://a.example":                    "https://a.example/v1",
		"https://a.example/":                   "https://a.example/v1",
		"https://a.example/v1":                 "https://a.example/v1",
		"https://a.example/v1/":                "https://a.example/v1",
		"https://a.example/api/v1":             "https://a.example/api/v1",
		"https://a.example/openai":             "https://a.example/openai/v1",
		"https://a.example/v1beta/openai/":     "https://a.example/v1beta/openai",
		"https://a.example/api/coding/paas/v4": "https://a.example/api/coding/paas/v4",
		"https://v1.example":                   "https://v1.example/v1",
	} {
		if got := chat.RootOf(base); got != want {
			t.Errorf("%s: got %s, want %s", base, got, want)
		}
	}
}

// A request goes to the first provider of its kind whose model patterns match.
func TestRouting(t *testing.T) {
	providers := map[string]*stubProvider{}
	var entries []chat.Provider
	for _, e := range []struct {
		name, kind string
		models     []string
	}{
		{"claude", "anthropic", []string{"claude-*"}}, {"kimi", "openai", []string{"kimi-*", "moonshot"}},
		{"late", "openai", []string{"kimi-k2"}}, {"rest", "openai", []string{"*"}}, {"never", "openai", nil},
	} {
		providers[e.name] = newStubProvider(t, respond(200, `{"from":"`+e.name+`"}`))
		entries = append(entries, providerConfig(e.name, e.kind, providers[e.name].URL, func(p *chat.Provider) { p.Models = e.models }))
	}
	g := newGateway(t, entries)
	for _, tt := range []struct {
		path, body string
		want       string
	}{
		{"/v1/chat/completions", `{"model":"kimi-k2"}`, "kimi"},
		{"/v1/responses", `{"x":{"model":"kimi-k2"},"model":"moonshot"}`, "kimi"},
		{"/v1/responses", `{"model":"\u006boonshot"}`, "rest"},
		{"/v1/responses", `{"model":"\u006dimi-k2","messages":[{"model":"kimi-k2"}]}`, "rest"},
		{"/v1/responses", `{"model":"kimi\u002dk2"}`, "kimi"},
		{"/v1/responses", `{"model":"claude-4"}`, "rest"},
		{"/v1/responses", `{}`, "rest"},
		{"/v1/responses", `{"model": null}`, "rest"},
		{"/v1/messages", `{"model":"claude-4"}`, "claude"},
		{"/v1/messages", `{"model":"kimi-k2"}`, ""},
		{"/v1/messages", `{}`, ""},
	} {
		_, body := g.post(t, tt.path, tt.body, nil)
		if want := `{"from":"` + tt.want + `"}`; tt.want != "" && body != want || tt.want == "" && !strings.Contains(body, `"error"`) {
			t.Errorf("%s %s: got %s, want %s", tt.path, tt.body, body, tt.want)
		}
	}
}

// Every fault.Kind has an HTTP status and a JSON error of each vendor.
func TestEveryFaultKindHasAnErrorBody(t *testing.T) {
	for _, k := range fault.Kinds() {
		if s := chat.Status(k); s < 400 || s > 599 {
			t.Errorf("%s: status %d", k, s)
		}
		for _, vendor := range []llm.Vendor{anthropic.Vendor{}, openai.Vendor{}, gemini.Vendor{}} {
			var form struct {
				Type  string
				Error struct {
					Type, Message, Status string
					Code                  json.RawMessage
				}
			}
			if err := json.Unmarshal(vendor.AppendError(nil, llm.Failure{Status: http.StatusBadRequest, Kind: k, Text: "a \"text\"\n"}), &form); err != nil || form.Error.Message != "a \"text\"\n" {
				t.Errorf("%s: %+v, %v", k, form, err)
			}
			e := form.Error
			if ok := map[string]bool{
				"anthropic": form.Type == "error" && e.Type != "" && e.Code == nil && e.Status == "",
				"openai":    form.Type == "" && e.Type != "" && len(e.Code) > 2 && e.Code[0] == '"' && e.Status == "",
				"gemini":    form.Type == "" && e.Type == "" && string(e.Code) == "400" && e.Status != "",
			}[vendor.Kind()]; !ok {
				t.Errorf("%s: %s: %+v", vendor.Kind(), k, form)
			}
		}
	}
	for k, want := range map[fault.Kind]int{fault.Timeout: 504, fault.Unavailable: 502, fault.Full: 503, fault.Internal: 500, fault.UnknownHandle: 404} {
		if got := chat.Status(k); got != want {
			t.Errorf("%s: got %d, want %d", k, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	if got := chat.Default().Validate(); got != nil {
		t.Errorf("the defaults: %v", got)
	}
	for name, tt := range map[string]struct {
		change func(*chat.Provider)
		want   string
	}{
		"valid":              {func(*chat.Provider) {}, ""},
		"no name":            {func(p *chat.Provider) { p.Name = "" }, "providers[0].name: must be set and unique"},
		"duplicate name":     {func(p *chat.Provider) { p.Name = "other" }, "providers[1].name: must be set and unique"},
		"no kind":            {func(p *chat.Provider) { p.Kind = "" }, "providers[0].kind: openai or anthropic or gemini is needed"},
		"no URL":             {func(p *chat.Provider) { p.BaseURL = "" }, "providers[0].base_url: is missing"},
		"no host":            {func(p *chat.Provider) { p.BaseURL = "api.example" }, "providers[0].base_url: is not a URL"},
		"unknown scheme":     {func(p *chat.Provider) { p.BaseURL = "ftp://h" }, `providers[0].base_url: scheme "ftp" is not http or https`},
		"a key in the URL":   {func(p *chat.Provider) { p.BaseURL = "https://k@h" }, "providers[0].base_url: credentials do not belong in a URL: use api_key"},
		"a query":            {func(p *chat.Provider) { p.BaseURL = "https://h?x" }, "providers[0].base_url: a query or fragment has no meaning here: paths are put after it"},
		"an empty model":     {func(p *chat.Provider) { p.Models = []string{""} }, "providers[0].models: a name is empty"},
		"paths":              {func(p *chat.Provider) { p.Paths = []string{"/openai/*", "/v1/files"} }, ""},
		"a relative path":    {func(p *chat.Provider) { p.Paths = []string{"openai/*"} }, `providers[0].paths: "openai/*" does not begin with / and a name, such as /openai/*`},
		"every path":         {func(p *chat.Provider) { p.Paths = []string{"/*"} }, `providers[0].paths: "/*" does not begin with / and a name, such as /openai/*`},
		"connection header":  {func(p *chat.Provider) { p.Headers = map[string]secret.Text{"connection": {}} }, "providers[0].headers: connection belongs to the connection"},
		"fallback":           {func(p *chat.Provider) { p.Fallback = []string{"other"} }, ""},
		"fallback to itself": {func(p *chat.Provider) { p.Fallback = []string{"p"} }, `providers[0].fallback: "p" is not another provider of kind openai`},
		"unknown fallback":   {func(p *chat.Provider) { p.Fallback = []string{"x"} }, `providers[0].fallback: "x" is not another provider of kind openai`},
		"another kind":       {func(p *chat.Provider) { p.Fallback = []string{"claude"} }, `providers[0].fallback: "claude" is not another provider of kind openai`},
	} {
		cfg := chat.Default()
		cfg.Providers = []chat.Provider{providerConfig("p", "openai", "https://h", tt.change), providerConfig("other", "openai", "https://h"), providerConfig("claude", "anthropic", "https://h")}
		got := fmt.Sprint(errors.Join(cfg.Validate()...))
		if tt.want == "" {
			tt.want = "<nil>"
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// The model list has the form of the client's API, and each model comes from the provider that would serve it.
func TestModels(t *testing.T) {
	listing := func(body string) *stubProvider { return newStubProvider(t, respond(200, body)) }
	one := listing(`{"object":"list","data":[{"id":"kimi-k2","object":"model","created":17,"owned_by":"m","x":1e3},{"id":"gpt-x"}, {"id":"org/kimi"}]}`)
	two := listing(`{"data":[{"id":"gpt-x","object":"model"},{"id":"kimi-k2","theirs":true}]}`)
	claude := listing(`{"data":[{"type":"model","id":"claude-4","display_name":"C"}],"has_more":false}`)
	g := newGateway(t, []chat.Provider{
		providerConfig("kimi", "openai", one.URL, withAPIKey("k1"), func(p *chat.Provider) { p.Models = []string{"kimi-*", "*/kimi", "named"} }),
		providerConfig("rest", "openai", two.URL+"/v1", withAPIKey("k2")),
		providerConfig("down", "openai", unreachableURL(t), func(p *chat.Provider) { p.Models = []string{"unseen"} }),
		providerConfig("claude", "anthropic", claude.URL, withAPIKey("k3"), func(p *chat.Provider) { p.Models = []string{"claude-*", "claude-5"} }),
	})
	const first = `{"id":"kimi-k2","object":"model","created":17,"owned_by":"m","x":1e3}`
	for range 2 {
		resp, body := g.get(t, "/v1/models", http.Header{"Authorization": {"Bearer mine"}})
		want := `{"object":"list","data":[` + first + `,{"id":"org/kimi"},{"id":"named","object":"model","created":0,"owned_by":"kimi"},{"id":"gpt-x","object":"model"}]}`
		if diff := cmp.Diff(want, body); resp.StatusCode != http.StatusOK || diff != "" {
			t.Errorf("%d %s", resp.StatusCode, diff)
		}
	}
	if n := len(one.requests()); n != 1 || one.requests()[0].uri != "/v1/models" || one.requests()[0].header.Get("Authorization") != "Bearer k1" {
		t.Errorf("%d calls: %+v", n, one.requests())
	}
	version := http.Header{"Anthropic-Version": {"2023-06-01"}}
	_, body := g.get(t, "/v1/models", version)
	want := `{"data":[{"type":"model","id":"claude-4","display_name":"C"},{"id":"claude-5","type":"model","display_name":"claude-5","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"claude-4","last_id":"claude-5"}`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	if got := claude.requests()[0].header; got.Get("X-Api-Key") != "k3" || got.Get("Anthropic-Version") == "" {
		t.Errorf("got %v", got)
	}
	if resp, body := g.get(t, "/v1/models/kimi-k2", nil); resp.StatusCode != http.StatusOK || body != first {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if resp, body := g.get(t, "/v1/models/org/kimi", nil); resp.StatusCode != http.StatusOK || body != `{"id":"org/kimi"}` {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if resp, body := g.get(t, "/v1/models/nope", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "model_not_found") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if resp, body := g.get(t, "/v1/models/claude-4", version); resp.StatusCode != http.StatusOK || !strings.Contains(body, "claude-4") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// A client's own key is sent only if exactly one provider could own it.
func TestModelsWithTheClientsKey(t *testing.T) {
	one, two := newStubProvider(t, respond(200, `{"data":[{"id":"a"}]}`)), newStubProvider(t, respond(401, `{}`))
	mine := http.Header{"Authorization": {"Bearer mine"}}
	g := newGateway(t, []chat.Provider{providerConfig("one", "openai", one.URL), providerConfig("keyed", "openai", two.URL, withAPIKey("k"))})
	if _, body := g.get(t, "/v1/models", mine); body != `{"object":"list","data":[{"id":"a"}]}` || one.requests()[0].header.Get("Authorization") != "Bearer mine" {
		t.Errorf("got %s, called with %v", body, one.requests()[0].header)
	}
	g.reload(providerConfig("one", "openai", one.URL), providerConfig("two", "openai", two.URL))
	g.get(t, "/v1/models", mine)
	for _, f := range []*stubProvider{one, two} {
		if got := f.requests()[len(f.requests())-1].header.Get("Authorization"); got != "" {
			t.Errorf("the client's key was sent: %s", got)
		}
	}
	g.reload()
	if _, body := g.get(t, "/v1/models", nil); body != `{"object":"list","data":[]}` {
		t.Errorf("got %s", body)
	}
	if _, body := g.get(t, "/v1/models", http.Header{"Anthropic-Version": {"1"}}); body != `{"data":[],"has_more":false,"first_id":null,"last_id":null}` {
		t.Errorf("got %s", body)
	}
}
