package chat_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/recordings"
)

// agentsPolicy is the masking of profile = "agents".
func agentsPolicy(p *history.Policy) {
	p.Agents, p.PastBreakpoints, p.Template = true, true, history.PlainTemplate
}

// replayAgents sends each agent's recorded conversation through a gateway to a strict provider, and hands the sent and
// the received bodies to check.
func replayAgents(t *testing.T, masking func(*history.Policy), check func(t *testing.T, r recordings.Recording, sent, received []string)) {
	all, err := recordings.All()
	if err != nil {
		t.Fatal(err)
	}
	replayed := 0
	for _, r := range all {
		if len(r.Model) == 0 {
			continue
		}
		replayed++
		t.Run(r.Agent, func(t *testing.T) {
			p := fakeprovider.New(t, fakeprovider.Options{})
			kind, base := "openai", p.URL+"/v1"
			if strings.HasPrefix(r.Model[0].Path, "/v1/messages") {
				kind, base = "anthropic", p.URL
			}
			if r.Agent == "gemini" {
				kind, base = "gemini", p.URL
			}
			var options []option
			if masking != nil {
				options = append(options, withMasking(newRecall(t, nil), masking))
			}
			g := newGateway(t, []chat.Provider{providerConfig("p", kind, base)}, options...)
			var sent, received []string
			for i, one := range r.Model {
				resp, body := readReply(t, g.do(t, one.Method, one.Path, one.Body, one.Header))
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("request %d: %d %s", i, resp.StatusCode, body)
				}
				sent, received = append(sent, one.Body), append(received, string(p.Requests()[i].Body))
				checkHeaders(t, one.Header, p.Requests()[i].Header)
			}
			check(t, r, sent, received)
		})
	}
	if replayed < 7 {
		t.Errorf("only %d agents have recordings of model requests", replayed)
	}
}

// checkHeaders checks that what an agent says of itself and of the API version reaches the provider.
func checkHeaders(t *testing.T, sent, received http.Header) {
	t.Helper()
	for name := range sent {
		if name != "Authorization" && !strings.HasPrefix(name, "Sec-") && received.Get(name) != sent.Get(name) {
			t.Errorf("%s was %q and is %q", name, sent.Get(name), received.Get(name))
		}
	}
}

// Without masking, what an agent sends reaches the provider byte for byte.
func TestAgentsRequestsAreForwardedVerbatim(t *testing.T) {
	replayAgents(t, nil, func(t *testing.T, _ recordings.Recording, sent, received []string) {
		for i := range sent {
			if sent[i] != received[i] {
				t.Errorf("request %d changed at byte %d", i, commonLength(sent[i], received[i]))
			}
		}
	})
}

// With profile = "agents" a request that extends the one before it still does so at the provider, as far as the agent
// itself repeats it: the provider's cache holds.
func TestAgentsRequestsExtendEachOther(t *testing.T) {
	replayAgents(t, agentsPolicy, func(t *testing.T, _ recordings.Recording, sent, received []string) {
		for i := 1; i < len(sent); i++ {
			own, here := commonLength(sent[i-1], sent[i]), commonLength(received[i-1], received[i])
			if here < own {
				t.Errorf("request %d shares %d bytes with the one before it, the agent's own %d", i, here, own)
			}
		}
	})
}

// With a window of two turns, every agent's old results are masked, the strict provider accepts each request, and the
// masked part is smaller.
func TestAgentsOldResultsAreMasked(t *testing.T) {
	window := func(p *history.Policy) {
		agentsPolicy(p)
		p.Advance, p.WindowTurns = history.AdvanceEachTurn, 2
	}
	replayAgents(t, window, func(t *testing.T, r recordings.Recording, sent, received []string) {
		last := len(sent) - 1
		if len(received[last]) >= len(sent[last])-1000 {
			t.Errorf("%s: the last request has %d bytes, the agent's %d", r.Agent, len(received[last]), len(sent[last]))
		}
		if line := "000002 a line of the log"; !strings.Contains(sent[last], "alpha "+line) || strings.Contains(received[last], "alpha "+line) {
			t.Errorf("%s: the first result is not masked", r.Agent)
		}
		if !bytes.Contains([]byte(received[last]), []byte("gamma 000001")) {
			t.Errorf("%s: the last result is masked", r.Agent)
		}
	})
}

func commonLength(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Every path that the agents called, and those that they call in other modes, is answered as their provider answers it directly:
// status, kind of content, and every byte.
func TestAgentsPathsAreAnsweredAsByTheirProvider(t *testing.T) {
	all, err := recordings.All()
	if err != nil {
		t.Fatal(err)
	}
	key := http.Header{"Authorization": {"Bearer k"}, "Content-Type": {"application/json"}}
	anthropic := http.Header{"X-Api-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}}
	google := http.Header{"X-Goog-Api-Key": {"k"}, "Content-Type": {"application/json"}}
	const count = `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"how many"}]}`
	all = append(all, recordings.Recording{Agent: "other modes", Model: []recordings.Request{
		{Method: "POST", Path: "/v1/messages/count_tokens?beta=true", Header: anthropic, Body: count},
		{Method: "GET", Path: "/v1/files?limit=2", Header: anthropic},
		{Method: "POST", Path: "/v1/messages/batches", Header: anthropic, Body: "{}"},
		{Method: "GET", Path: "/v1/responses", Header: withHeader(key, "Connection", "Upgrade", "Upgrade", "websocket")},
		{Method: "GET", Path: "/v1/responses/resp_1", Header: key},
		{Method: "POST", Path: "/v1/responses/compact", Header: key, Body: `{"model":"gpt-5.5","input":[]}`},
		{Method: "POST", Path: "/v1/embeddings", Header: key, Body: `{"model":"text-embedding-3-small","input":"x"}`},
		{Method: "POST", Path: "/v1/completions", Header: key, Body: `{"model":"gpt-3.5-turbo-instruct","prompt":"x"}`},
		{Method: "DELETE", Path: "/v1/files/f1", Header: key},
		{Method: "POST", Path: "/v1beta/models/gemini-2.5-flash:countTokens", Header: google, Body: `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`},
		{Method: "GET", Path: "/v1beta/files/f1", Header: google},
	}})
	for _, r := range all {
		t.Run(r.Agent, func(t *testing.T) {
			direct, behind := fakeprovider.New(t, fakeprovider.Options{}), fakeprovider.New(t, fakeprovider.Options{})
			g := newGateway(t, []chat.Provider{
				providerConfig("openai", "openai", behind.URL+"/v1"), providerConfig("anthropic", "anthropic", behind.URL), providerConfig("gemini", "gemini", behind.URL),
			})
			for _, one := range r.Model {
				req, err := http.NewRequestWithContext(t.Context(), one.Method, direct.URL+one.Path, strings.NewReader(one.Body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = one.Header.Clone()
				resp, err := g.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				want, wantBody := readReply(t, resp)
				got, body := readReply(t, g.do(t, one.Method, one.Path, one.Body, one.Header))
				if got.StatusCode != want.StatusCode || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
					t.Errorf("%s %s: got %d %s %s, directly %d %s %s", one.Method, one.Path, got.StatusCode, got.Header.Get("Content-Type"), body, want.StatusCode, want.Header.Get("Content-Type"), wantBody)
				}
				if body != wantBody && want.StatusCode != http.StatusUpgradeRequired { // that is the gateway's own refusal
					t.Errorf("%s %s: the reply differs at byte %d: %.200s", one.Method, one.Path, commonLength(body, wantBody), body)
				}
			}
		})
	}
}
