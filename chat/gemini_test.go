package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/recall"
)

// Keys of Gemini's API are in a header or in the query. None stays in an address, and the gateway's token reaches
// no provider.
func TestGeminiKeys(t *testing.T) {
	const path = "/v1beta/models/m-1:streamGenerateContent"
	header := func(key string) http.Header { return http.Header{"X-Goog-Api-Key": {key}} }
	for name, tt := range map[string]struct {
		apiKey, token, query string
		send                 http.Header
		status               int
		uri, key             string // at the provider
	}{
		"the client's key":                    {"", "", "?alt=sse", header("mine"), 200, path + "?alt=sse", "mine"},
		"the client's key in the query":       {"", "", "?alt=sse&key=m%69ne", nil, 200, path + "?alt=sse", "mine"},
		"only a key in the query":             {"", "", "?key=mine", nil, 200, path, "mine"},
		"the header wins over the query":      {"", "", "?key=other", header("mine"), 200, path, "mine"},
		"a configured key replaces the query": {"k", "", "?%6Bey=mine&x=%20", nil, 200, path + "?x=%20", "k"},
		"the token in the header":             {"k", "t0ken", "", header("t0ken"), 200, path, "k"},
		"the token in the query":              {"k", "t0ken", "?key=t0ken", nil, 200, path, "k"},
		"the token is not forwarded":          {"", "t0ken", "?key=t0ken", nil, 200, path, ""},
		"the token and the client's key":      {"", "t0ken", "?key=mine", http.Header{"X-Ctxgate-Token": {"t0ken"}}, 200, path, "mine"},
		"a wrong token":                       {"k", "t0ken", "?key=mine", nil, 401, "", ""},
		"a wrong token in the header":         {"k", "t0ken", "", header("mine"), 401, "", ""},
	} {
		f := newStubProvider(t, respond(200, "{}"))
		var options []option
		if tt.token != "" {
			options = append(options, withToken(tt.token))
		}
		g := newGateway(t, []chat.Provider{providerConfig("p", "gemini", f.URL, withAPIKey(tt.apiKey))}, options...)
		resp, body := g.post(t, path+tt.query, `{"contents":[]}`, tt.send)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: got %d %s", name, resp.StatusCode, body)
			continue
		}
		if tt.status != http.StatusOK {
			if len(f.requests()) > 0 || !strings.HasPrefix(body, `{"error":{"code":401,`) {
				t.Errorf("%s: got %s", name, body)
			}
			continue
		}
		if got := f.requests()[0]; got.uri != tt.uri || got.header.Get("X-Goog-Api-Key") != tt.key || got.header.Get("Authorization") != "" {
			t.Errorf("%s: the provider got %s %v", name, got.uri, got.header)
		}
	}
}

// The version and the model are the path's; a fallback gets the form of the reply, and nothing else of the query.
func TestGeminiPaths(t *testing.T) {
	down, f := newStubProvider(t, hangUp), newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{
		providerConfig("down", "gemini", down.URL, func(p *chat.Provider) { p.Models, p.Fallback, p.Retries = []string{"down"}, []string{"p"}, 0 }),
		providerConfig("fixed", "gemini", f.URL+"/v1main", func(p *chat.Provider) { p.Models = []string{"fixed*"} }),
		providerConfig("p", "gemini", f.URL),
	})
	for path, want := range map[string]string{
		"/v1beta/models/a%2Fb:generateContent":                        "", // one segment names the model
		"/v1beta/models/gemini-3-pro:generateContent":                 "/v1beta/models/gemini-3-pro:generateContent",
		"/v1/models/m%20x:countTokens":                                "/v1/models/m%20x:countTokens",
		"/v1alpha/models/m:embedContent":                              "/v1alpha/models/m:embedContent",
		"/v1beta/models/fixed-1:generateContent":                      "/v1main/models/fixed-1:generateContent",
		"/v1beta/models/down:streamGenerateContent?alt=sse&user=me":   "/v1beta/models/down:streamGenerateContent?alt=sse",
		"/v1beta/models/down:streamGenerateContent?user=me&key=other": "/v1beta/models/down:streamGenerateContent",
	} {
		before := len(f.requests())
		resp, body := g.post(t, path, `{"contents":[]}`, nil)
		got := ""
		if all := f.requests(); len(all) > before {
			got = all[len(all)-1].uri
		}
		if want != "" && (got != want || resp.StatusCode != http.StatusOK) || want == "" && resp.StatusCode == http.StatusInternalServerError {
			t.Errorf("%s: the provider got %s, the client %d %s", path, got, resp.StatusCode, body)
		}
	}
	if resp, body := g.post(t, "/v1beta/models/m:generateContent", `{"contents":[],"contents":[]}`, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"status":"INVALID_ARGUMENT"`) {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// Without alt=sse a stream is one JSON array: it is masked and accounted, and the model cannot read back.
func TestGeminiArrayStream(t *testing.T) {
	p := fakeprovider.New(t, fakeprovider.Options{})
	p.Script(fakeprovider.ReplyText("some words, and more words"))
	d := dialects[fakeprovider.Gemini]
	g := gatewayTo(t, d, p, withRecovery(newRecall(t, nil), twoTurnWindow))
	resp, body := g.post(t, "/v1beta/models/m-1:streamGenerateContent", d.request(true, d.conversation(4)...), nil)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, `[{"candidates":`) || !strings.HasSuffix(body, "]") {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	sent := p.Requests()[0]
	if strings.Contains(string(sent.Body), "recover_text") || len(maskedID.FindAll(sent.Body, -1)) != 2 {
		t.Errorf("sent %s", sent.Body)
	}
	in, out := chargedTokens(p)
	g.wantMetrics(t, fmt.Sprintf(`ctxgate_llm_tokens_total{kind="fresh",provider="p"} %d`, in), fmt.Sprintf(`ctxgate_llm_tokens_total{kind="output",provider="p"} %d`, out))
}

// H+5: calls without ids, as models before Gemini 3 make them, are answered without ids, and restored.
func TestGeminiReadsBackWithoutIDs(t *testing.T) {
	d := dialects[fakeprovider.Gemini]
	for _, stream := range []bool{false, true} {
		p, r := fakeprovider.New(t, fakeprovider.Options{NoCallIDs: true}), newRecall(t, nil)
		id, err := r.StoreText(t.Context(), auth.DefaultTenant, "one\ntwo\n", recall.Origin{Server: masking.ProviderOrigin("p")})
		if err != nil {
			t.Fatal(err)
		}
		p.Script(
			fakeprovider.Step{Text: "Let me see. ", Calls: []fakeprovider.Call{recoverCall(id, ""), recoverCall(id, `,"pattern":"w"`)}},
			fakeprovider.CallTools(recoverCall(id, ""), fakeprovider.Call{Name: "read", Args: `{}`}, fakeprovider.Call{Name: "read", Args: `{"n":2}`}),
			fakeprovider.ReplyText("It is 7."),
		)
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
		result := func(text string) string {
			return fmt.Sprintf(`{"functionResponse":{"name":"read","response":{"output":%q}}}`, text)
		}
		turn := func(i int) string {
			return `{"role":"model","parts":[{"functionCall":{"name":"read","args":{}}}]},{"role":"user","parts":[` + result(resultText(i)) + `]}`
		}
		messages := []string{`{"role":"user","parts":[{"text":"go"}]}`, turn(0)}
		got, err := d.send(t.Context(), t, g.URL, d.request(stream, messages...), stream)
		if err != nil || got.text != "Let me see. " || len(got.calls) != 2 {
			t.Fatalf("got %+v, %v", got, err)
		}
		messages = append(append(messages, got.elements...), `{"role":"user","parts":[`+result("mine 1")+`,`+result("mine 2")+`]}`)
		if got, err = d.send(t.Context(), t, g.URL, d.request(stream, messages...), stream); err != nil || got.text != "It is 7." {
			t.Fatalf("got %+v, %v", got, err)
		}
		all := requireAccepted(t, p, 3)
		if before, now := messagesSent(t, all[1].Body), messagesSent(t, all[2].Body); !strings.HasPrefix(now, before) || strings.Contains(now, `"id"`) {
			t.Errorf("%s\ndoes not extend\n%s", now, before)
		}
		var texts []string
		for _, one := range all[2].Results[1:] {
			texts = append(texts, one.Text)
		}
		if got := strings.Join(texts, "|"); got != "one\ntwo\n|two\n|one\ntwo\n|mine 1|mine 2" {
			t.Errorf("the model got %q", got)
		}
	}
}
