package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/openai"
)

// stubCodec is a fourth wire format with other key names: it shows everything that adding one takes.
type stubCodec struct{}

// stubVendor is its API family. Model lists are as OpenAI's.
type stubVendor struct{ openai.Vendor }

func (stubVendor) Kind() string                     { return "stub" }
func (stubVendor) SetKey(h http.Header, key string) { h.Set("X-Stub-Key", key) }

func (stubVendor) AppendError(dst []byte, f llm.Failure) []byte {
	return append(dst, `{"oops":"`+f.Kind.String()+`"}`...)
}

var stubWire = llm.Wire{
	Name: "stub", Vendor: stubVendor{},
	Endpoints:   []llm.Endpoint{{Path: "/stub/talk", UpstreamPath: "/talk", Conversation: true}},
	MessagesKey: "turns", RequestKeys: []string{"model", "turns"},
	Usage: llm.UsageKeys{Model: "engine", Object: "meter", Input: "read", Output: "written", Cached: []string{"known"}},
}

func (stubCodec) Wire() *llm.Wire { return &stubWire }

func (stubCodec) ReadMessage(r *llm.Reader, s *jsonscan.Scanner, m *llm.Message) (err error) {
	var who []byte
	var says, gave, ref, uses llm.Value
	m.Span, err = r.Object(s, []string{"who", "says", "uses", "ref", "gave"}, func(key []byte, v llm.Value) {
		switch string(key) {
		case "who":
			who = r.Text(v)
		case "says":
			says = v
		case "uses":
			uses = v
		case "ref":
			ref = v
		case "gave":
			gave = v
		}
	})
	if err != nil {
		return err
	}
	m.Weight = m.Len()
	switch string(who) {
	case "user":
		m.Spoken, m.ByUser, m.Prompt, m.ClosesTurn = true, true, says.Span, true
	case "tool":
		content, _, err := r.ReadContent(gave, true, &m.Mark)
		m.Results = append(m.Results, llm.Result{CallID: ref, Content: content})
		return err
	case "model":
		m.Spoken, m.ClosesTurn = true, true
		return r.Each(uses.Span, func(s *jsonscan.Scanner) error {
			var call llm.Call
			_, err := r.Object(s, nil, func(key []byte, v llm.Value) {
				switch string(key) {
				case "ref":
					call.ID = v
				case "tool":
					call.Name = v
				}
			})
			m.Calls = append(m.Calls, call)
			return err
		})
	}
	return nil
}

func (stubCodec) CallArguments([]byte, jsonscan.Span, string, int) ([]byte, bool) { return nil, false }

func (stubCodec) DigestMessage(d llm.Digest, body []byte, message jsonscan.Span, _ bool) {
	d.Part("turn", message.Of(body))
}

func (stubCodec) ToolName([]byte, jsonscan.Span) string { return "" }

func stubDialogue(turns int) string {
	b := `{"model":"m-1", "turns":[{"who":"user","says":"go"}`
	for i := range turns {
		b += fmt.Sprintf(`, {"who":"model","uses":[{"ref":"c%d","tool":"read"}]},{"ref":"c%d", "who":"tool","gave":%q}`, i, i, resultText(i))
	}
	return b + `],"more":1.50}`
}

// A fourth wire format needs one Codec and one line of registration: its requests are routed, masked and
// forwarded, its replies relayed and accounted, and its errors have its own form.
func TestFourthWire(t *testing.T) {
	const reply = `{"engine":"m-1-x","said":"done","meter":{"read":50,"known":8,"written":7}}`
	f := newStubProvider(t, respond(http.StatusOK, reply))
	r := newRecall(t, nil)
	fourth := func(_ *chat.Settings, d *chat.Deps) { d.Wires = append(chat.AllWires(), stubCodec{}) } // the line of registration
	g := newGateway(t, []chat.Provider{providerConfig("p", "stub", f.URL, withAPIKey("k"))}, withMasking(r, twoTurnWindow), fourth)

	resp, got := g.post(t, "/stub/talk", stubDialogue(4), nil)
	if resp.StatusCode != http.StatusOK || got != reply {
		t.Fatalf("got %d %s", resp.StatusCode, got)
	}
	sent := f.requests()[0]
	if sent.uri != "/v1/talk" || sent.header.Get("X-Stub-Key") != "k" {
		t.Errorf("the provider got %s %v", sent.uri, sent.header)
	}
	// Two of four results are masked, everything else is unchanged, and the originals are stored.
	body, masked := string(sent.body), placeholder.FindAllStringSubmatch(string(sent.body), -1)
	if len(masked) != 2 || masked[0][1] != "c0" || masked[1][1] != "c1" {
		t.Fatalf("masked %q in %s", masked, body)
	}
	for i, m := range masked {
		body = strings.Replace(body, `"`+m[0]+`"`, fmt.Sprintf("%q", resultText(i)), 1)
		if original := readTenantOriginal(t, r, auth.DefaultTenant, m[3]); original != resultText(i) {
			t.Errorf("the original of %s is %q", m[1], original)
		}
	}
	if body != stubDialogue(4) {
		t.Errorf("more than the results changed: %s", body)
	}
	g.wantMetrics(t, `ctxgate_llm_tokens_total{kind="cached",provider="p"} 8`, `ctxgate_llm_tokens_total{kind="fresh",provider="p"} 42`, `ctxgate_llm_tokens_total{kind="output",provider="p"} 7`)

	if resp, got := g.post(t, "/stub/talk", `{"model":"m-1","turns":[],"turns":[]}`, nil); resp.StatusCode != http.StatusBadRequest || !strings.HasPrefix(got, `{"oops":`) {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
	// The other wire formats are still served.
	if resp, _ := g.post(t, "/v1/chat/completions", requestBodies["/v1/chat/completions"](1), nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a wire format without a provider: got %d", resp.StatusCode)
	}
}
