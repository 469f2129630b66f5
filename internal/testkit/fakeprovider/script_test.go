package fakeprovider

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func streamBody(shape Shape) string {
	return strings.Replace(requestWith(shape, `{"role":"user","content":"hi"}`), `{"model"`, `{"stream":true,"model"`, 1)
}

func sendRequest(ctx context.Context, t *testing.T, p *Provider, shape Shape, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+shape.Path(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return http.DefaultClient.Do(req)
}

// A step with Cut closes the connection before the headers, in the middle of a body, or before a stream's end.
func TestCuts(t *testing.T) {
	for _, shape := range AllShapes() {
		p := New(t, Options{})
		p.Script(CutAfter("x", 0), CutAfter("some words to cut off", 1), CutAfter("some words to cut off", 3))
		if resp, err := sendRequest(t.Context(), t, p, shape, streamBody(shape)); err == nil {
			resp.Body.Close()
			t.Errorf("%s: got headers, want a closed connection", shape)
		}
		for _, body := range []string{requestWith(shape, `{"role":"user","content":"hi"}`), streamBody(shape)} {
			resp, err := sendRequest(t.Context(), t, p, shape, body)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(text) == 0 {
				t.Errorf("%s: %v after %q", shape, err, text)
			}
		}
		if n := len(p.Bill()); n != 3 {
			t.Errorf("%s: %d on the bill", shape, n)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestGarbage(t *testing.T) {
	for _, shape := range AllShapes() {
		p := New(t, Options{})
		p.Script(Step{Garbage: "<html>"}, Step{Text: "words", Garbage: "data: {\n\n", AfterEvents: 2})
		if _, body := post(t, p, shape, requestWith(shape, `{"role":"user","content":"hi"}`)); body != "<html>" {
			t.Errorf("%s: %q", shape, body)
		}
		_, body := post(t, p, shape, streamBody(shape))
		if !strings.Contains(body, "\n\ndata: {\n\n") || strings.Count(body, "\n\n") < 5 {
			t.Errorf("%s: %q", shape, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Events keep their pace, and a client that disconnects is recorded.
func TestEventDelayAndDisconnect(t *testing.T) {
	for _, shape := range AllShapes() {
		p := New(t, Options{})
		p.Script(Step{Text: strings.Repeat("word ", 4000), EventDelay: 2 * time.Millisecond}, Step{Delay: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := sendRequest(ctx, t, p, shape, streamBody(shape))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		lines := bufio.NewScanner(resp.Body)
		for range 20 {
			lines.Scan()
		}
		if d := time.Since(begin); d < 6*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s: read twenty lines in %v", shape, d)
		}
		cancel()
		resp.Body.Close()
		waitClientGone(t, p, 0)
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		if resp, err := sendRequest(ctx, t, p, shape, streamBody(shape)); err == nil {
			resp.Body.Close()
			t.Error("the reply was not delayed")
		}
		cancel()
		waitClientGone(t, p, 1)
		if n := len(p.Bill()); n != 1 {
			t.Errorf("%s: %d on the bill, though one client left before the reply began", shape, n)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func waitClientGone(t *testing.T, p *Provider, n int) {
	t.Helper()
	for range 2000 {
		if r := p.Requests(); len(r) > n && r[n].ClientGone {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("request %d: the client's disconnect was not recorded", n)
}

// Close ends open streams.
func TestCloseEndsStreams(t *testing.T) {
	p := New(nil, Options{})
	p.Script(Step{Text: strings.Repeat("word ", 1000), EventDelay: time.Minute, ChunkSize: 5})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := sendRequest(t.Context(), t, p, Chat, streamBody(Chat)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	for len(p.Bill()) == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	p.Close()
	<-done
	http.DefaultClient.CloseIdleConnections()
}

func TestScripts(t *testing.T) {
	p := New(t, Options{ClockStep: time.Second})
	p.Script(ReplyText("one"), Step{Text: "two", Truncated: true})
	for _, want := range []string{"one", "length", "ok"} {
		if _, body := post(t, p, Chat, requestWith(Chat, chatUser)); !strings.Contains(body, `"`+want+`"`) {
			t.Errorf("%q is not in %s", want, body)
		}
	}
	p.ScriptFunc(func(r Request) Step { return ReplyText(strings.ToUpper(r.Model)) })
	if _, body := post(t, p, Chat, requestWith(Chat, chatUser)); !strings.Contains(body, `"M"`) {
		t.Error(body)
	}
	if got := p.Now().Sub(epoch); got != 4*time.Second {
		t.Errorf("the clock moved by %v", got)
	}
	p.Reset()
	if len(p.Requests())+len(p.Bill()) != 0 || p.Cost() != 0 {
		t.Error("Reset did not clear everything")
	}
	http.DefaultClient.CloseIdleConnections()
}

// The cache key does not depend on where breakpoints are, on white space in schemas, or on whether a text
// is a string or a block. It depends on tool_choice and thinking.
func TestCacheKeyIgnoresEncoding(t *testing.T) {
	text := strings.Repeat("words and words ", 400)
	tool := `{"name":"f","input_schema":{"type":"object"}}`
	body := func(tool, system, more, content string) string {
		return `{"model":"m","max_tokens":4096` + more + `,"tools":[` + tool + `],"system":` + system + `,"messages":[{"role":"user","content":` + content + `}]}`
	}
	plain := `[{"type":"text","text":"` + text + `","cache_control":{"type":"ephemeral"}}]`
	same := []string{
		body(tool, plain, "", `"hi"`),
		body(`{ "name": "f", "input_schema": { "type":"object" } }`, plain, "", `[{"type":"text","text":"hi"}]`),
		body(`{"name":"f","cache_control":{"type":"ephemeral"},"input_schema":{"type":"object"}}`, plain, "", `[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]`),
		body(tool, `"`+text+`"`, `,"cache_control":{"type":"ephemeral"}`, `"hi"`),
	}
	p := New(t, Options{})
	for i, b := range same {
		if resp, text := post(t, p, Messages, b); resp.StatusCode != http.StatusOK {
			t.Fatal(text)
		}
		if e := p.Bill()[i]; (e.CacheRead > 1024) != (i > 0) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	post(t, p, Messages, body(tool, `"`+text+`"`, `,"tool_choice":{"type":"any"},"cache_control":{"type":"ephemeral"}`, `"hi"`))
	if e := p.Bill()[4]; e.CacheRead == 0 || e.CacheWrite == 0 {
		t.Errorf("another tool_choice: %+v", e)
	}
	http.DefaultClient.CloseIdleConnections()
}
