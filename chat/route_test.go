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
)

func TestFits(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "x", true}, {"a", "a", true}, {"a", "ab", false}, {"kimi-*", "kimi-", true}, {"kimi-*", "kimi-k2", true},
		{"kimi-*", "xkimi-k2", false}, {"*-mini", "gpt-mini", true}, {"*-mini", "gpt-mini-2", false}, {"a*c*e", "abcde", true},
		{"a*c*e", "ace", true}, {"a*c*e", "aec", false}, {"a*a", "a", false}, {"*a*", "bab", true}, {"a**b", "ab", true}, {"ab*ba", "aba", false},
	} {
		if got := chat.Fits(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%s fits %s: %v", tt.name, tt.pattern, got)
		}
	}
}

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

// The first provider of the fitting kind whose pattern fits serves a request.
func TestRouting(t *testing.T) {
	far := map[string]*far{}
	var entries []chat.Provider
	for _, e := range []struct {
		name, kind string
		models     []string
	}{
		{"claude", "anthropic", []string{"claude-*"}}, {"kimi", "openai", []string{"kimi-*", "moonshot"}},
		{"late", "openai", []string{"kimi-k2"}}, {"rest", "openai", []string{"*"}}, {"never", "openai", nil},
	} {
		far[e.name] = newFar(t, says(200, `{"from":"`+e.name+`"}`))
		entries = append(entries, provider(e.name, e.kind, far[e.name].URL, func(p *chat.Provider) { p.Models = e.models }))
	}
	g := open(t, entries)
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

// Every kind of failure has a status and a form that is JSON.
func TestEveryKindHasItsForm(t *testing.T) {
	for _, k := range fault.Kinds() {
		if s := chat.Status(k); s < 400 || s > 599 {
			t.Errorf("%s: status %d", k, s)
		}
		for _, anthropic := range []bool{true, false} {
			var form struct {
				Type  string
				Error struct{ Type, Message, Code string }
			}
			if err := json.Unmarshal(chat.ErrorText(nil, anthropic, k, "a \"text\"\n"), &form); err != nil || form.Error.Message != "a \"text\"\n" || form.Error.Type == "" {
				t.Errorf("%s: %+v, %v", k, form, err)
			}
			if (form.Type == "error") != anthropic || (form.Error.Code != "") == anthropic {
				t.Errorf("%s: %+v", k, form)
			}
		}
	}
	for k, want := range map[fault.Kind]int{fault.Timeout: 504, fault.Unavailable: 502, fault.Full: 503, fault.Internal: 500, fault.Unknown: 404} {
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
		"fine":               {func(*chat.Provider) {}, ""},
		"no name":            {func(p *chat.Provider) { p.Name = "" }, "providers[0].name: must be there and be no other provider's"},
		"a name twice":       {func(p *chat.Provider) { p.Name = "other" }, "providers[1].name: must be there and be no other provider's"},
		"no kind":            {func(p *chat.Provider) { p.Kind = "" }, "providers[0].kind: openai or anthropic is needed"},
		"no URL":             {func(p *chat.Provider) { p.BaseURL = "" }, "providers[0].base_url: is missing"},
		"no host":            {func(p *chat.Provider) { p.BaseURL = "api.example" }, "providers[0].base_url: is not a URL"},
		"another scheme":     {func(p *chat.Provider) { p.BaseURL = "ftp://h" }, `providers[0].base_url: scheme "ftp" is not http or https`},
		"a key in the URL":   {func(p *chat.Provider) { p.BaseURL = "https://k@h" }, "providers[0].base_url: credentials do not belong in a URL: use api_key"},
		"a query":            {func(p *chat.Provider) { p.BaseURL = "https://h?x" }, "providers[0].base_url: a query or fragment has no meaning here: paths are put after it"},
		"an empty model":     {func(p *chat.Provider) { p.Models = []string{""} }, "providers[0].models: a name is empty"},
		"a header":           {func(p *chat.Provider) { p.Headers = map[string]secret.Text{"connection": {}} }, "providers[0].headers: connection belongs to the connection"},
		"fallback":           {func(p *chat.Provider) { p.Fallback = []string{"other"} }, ""},
		"fallback to itself": {func(p *chat.Provider) { p.Fallback = []string{"p"} }, `providers[0].fallback: "p" is no other provider of kind openai`},
		"fallback nowhere":   {func(p *chat.Provider) { p.Fallback = []string{"x"} }, `providers[0].fallback: "x" is no other provider of kind openai`},
		"fallback elsewhere": {func(p *chat.Provider) { p.Fallback = []string{"claude"} }, `providers[0].fallback: "claude" is no other provider of kind openai`},
	} {
		cfg := chat.Default()
		cfg.Providers = []chat.Provider{provider("p", "openai", "https://h", tt.change), provider("other", "openai", "https://h"), provider("claude", "anthropic", "https://h")}
		got := fmt.Sprint(errors.Join(cfg.Validate()...))
		if tt.want == "" {
			tt.want = "<nil>"
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// The models that a client can ask for, in its own form; each from the provider that would serve it.
func TestModels(t *testing.T) {
	lists := func(body string) *far { return newFar(t, says(200, body)) }
	one := lists(`{"object":"list","data":[{"id":"kimi-k2","object":"model","created":17,"owned_by":"m","x":1e3},{"id":"gpt-x"}, {"id":"org/kimi"}]}`)
	two := lists(`{"data":[{"id":"gpt-x","object":"model"},{"id":"kimi-k2","theirs":true}]}`)
	claude := lists(`{"data":[{"type":"model","id":"claude-4","display_name":"C"}],"has_more":false}`)
	g := open(t, []chat.Provider{
		provider("kimi", "openai", one.URL, keyed("k1"), func(p *chat.Provider) { p.Models = []string{"kimi-*", "*/kimi", "named"} }),
		provider("rest", "openai", two.URL+"/v1", keyed("k2")),
		provider("down", "openai", nowhere(t), func(p *chat.Provider) { p.Models = []string{"unseen"} }),
		provider("claude", "anthropic", claude.URL, keyed("k3"), func(p *chat.Provider) { p.Models = []string{"claude-*", "claude-5"} }),
	})
	const first = `{"id":"kimi-k2","object":"model","created":17,"owned_by":"m","x":1e3}`
	for range 2 {
		resp, body := g.get(t, "/v1/models", http.Header{"Authorization": {"Bearer mine"}})
		want := `{"object":"list","data":[` + first + `,{"id":"org/kimi"},{"id":"named","object":"model","created":0,"owned_by":"kimi"},{"id":"gpt-x","object":"model"}]}`
		if diff := cmp.Diff(want, body); resp.StatusCode != http.StatusOK || diff != "" {
			t.Errorf("%d %s", resp.StatusCode, diff)
		}
	}
	if n := len(one.calls()); n != 1 || one.calls()[0].uri != "/v1/models" || one.calls()[0].head.Get("Authorization") != "Bearer k1" {
		t.Errorf("%d calls: %+v", n, one.calls())
	}
	version := http.Header{"Anthropic-Version": {"2023-06-01"}}
	_, body := g.get(t, "/v1/models", version)
	want := `{"data":[{"type":"model","id":"claude-4","display_name":"C"},{"id":"claude-5","type":"model","display_name":"claude-5","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"claude-4","last_id":"claude-5"}`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	if got := claude.calls()[0].head; got.Get("X-Api-Key") != "k3" || got.Get("Anthropic-Version") == "" {
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

// A client's own key goes only to the one provider that it can be for.
func TestModelsWithTheClientsKey(t *testing.T) {
	one, two := newFar(t, says(200, `{"data":[{"id":"a"}]}`)), newFar(t, says(401, `{}`))
	mine := http.Header{"Authorization": {"Bearer mine"}}
	g := open(t, []chat.Provider{provider("one", "openai", one.URL), provider("keyed", "openai", two.URL, keyed("k"))})
	if _, body := g.get(t, "/v1/models", mine); body != `{"object":"list","data":[{"id":"a"}]}` || one.calls()[0].head.Get("Authorization") != "Bearer mine" {
		t.Errorf("got %s, asked with %v", body, one.calls()[0].head)
	}
	g.reload(provider("one", "openai", one.URL), provider("two", "openai", two.URL))
	g.get(t, "/v1/models", mine)
	for _, f := range []*far{one, two} {
		if got := f.calls()[len(f.calls())-1].head.Get("Authorization"); got != "" {
			t.Errorf("asked with %s", got)
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
