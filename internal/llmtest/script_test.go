package llmtest

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
	return strings.Replace(wrapped(shape, `{"role":"user","content":"hi"}`), `{"model"`, `{"stream":true,"model"`, 1)
}

func start(ctx context.Context, t *testing.T, p *Provider, shape Shape, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+shape.Path(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	return http.DefaultClient.Do(req)
}

// A connection that is cut looks like one: no headers, half a body, or a stream without its end.
func TestCuts(t *testing.T) {
	for _, shape := range Shapes() {
		p := New(t, Options{})
		p.Script(Cut("x", 0), Cut("some words to cut off", 1), Cut("some words to cut off", 3))
		if resp, err := start(t.Context(), t, p, shape, streamBody(shape)); err == nil {
			resp.Body.Close()
			t.Errorf("%s: headers came", shape)
		}
		for _, body := range []string{wrapped(shape, `{"role":"user","content":"hi"}`), streamBody(shape)} {
			resp, err := start(t.Context(), t, p, shape, body)
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
	for _, shape := range Shapes() {
		p := New(t, Options{})
		p.Script(Step{Garbage: "<html>"}, Step{Text: "words", Garbage: "data: {\n\n", At: 2})
		if _, body := post(t, p, shape, wrapped(shape, `{"role":"user","content":"hi"}`)); body != "<html>" {
			t.Errorf("%s: %q", shape, body)
		}
		_, body := post(t, p, shape, streamBody(shape))
		if !strings.Contains(body, "\n\ndata: {\n\n") || strings.Count(body, "\n\n") < 5 {
			t.Errorf("%s: %q", shape, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Events come when they are due, and a client that leaves is seen to.
func TestPaceAndLeaving(t *testing.T) {
	for _, shape := range Shapes() {
		p := New(t, Options{})
		p.Script(Step{Text: strings.Repeat("word ", 4000), Pace: 2 * time.Millisecond}, Step{Delay: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := start(ctx, t, p, shape, streamBody(shape))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		lines := bufio.NewScanner(resp.Body)
		for range 20 {
			lines.Scan()
		}
		if d := time.Since(begin); d < 6*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s: twenty lines in %v", shape, d)
		}
		cancel()
		resp.Body.Close()
		waitGone(t, p, 0)
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		if resp, err := start(ctx, t, p, shape, streamBody(shape)); err == nil {
			resp.Body.Close()
			t.Error("no delay")
		}
		cancel()
		waitGone(t, p, 1)
		if n := len(p.Bill()); n != 1 {
			t.Errorf("%s: %d on the bill, though one left before the answer began", shape, n)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func waitGone(t *testing.T, p *Provider, n int) {
	t.Helper()
	for range 2000 {
		if r := p.Requests(); len(r) > n && r[n].Gone {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("request %d: the client's leaving was not seen", n)
}

// Close ends what is under way.
func TestCloseEndsStreams(t *testing.T) {
	p := New(nil, Options{})
	p.Script(Step{Text: strings.Repeat("word ", 1000), Pace: time.Minute, Chunk: 5})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := start(t.Context(), t, p, Chat, streamBody(Chat)); err == nil {
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
	p := New(t, Options{Tick: time.Second})
	p.Script(Say("one"), Step{Text: "two", Short: true})
	for _, want := range []string{"one", "length", "ok"} {
		if _, body := post(t, p, Chat, wrapped(Chat, chatUser)); !strings.Contains(body, `"`+want+`"`) {
			t.Errorf("%q is not in %s", want, body)
		}
	}
	p.ScriptFunc(func(r Request) Step { return Say(strings.ToUpper(r.Model)) })
	if _, body := post(t, p, Chat, wrapped(Chat, chatUser)); !strings.Contains(body, `"M"`) {
		t.Error(body)
	}
	if got := p.Now().Sub(epoch); got != 4*time.Second {
		t.Errorf("the clock moved by %v", got)
	}
	p.Reset()
	if len(p.Requests())+len(p.Bill()) != 0 || p.Cost() != 0 {
		t.Error("something was kept")
	}
	http.DefaultClient.CloseIdleConnections()
}

// What changes nothing for the model changes nothing for the cache: where breakpoints lie, white
// space in schemas, a text as a string or as a block. What it may choose and whether it thinks does.
func TestSamePromptInAnotherDress(t *testing.T) {
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
		if e := p.Bill()[i]; (e.Cached > 1024) != (i > 0) {
			t.Errorf("%d: %+v", i, e)
		}
	}
	post(t, p, Messages, body(tool, `"`+text+`"`, `,"tool_choice":{"type":"any"},"cache_control":{"type":"ephemeral"}`, `"hi"`))
	if e := p.Bill()[4]; e.Cached == 0 || e.Created == 0 {
		t.Errorf("another choice of tools: %+v", e)
	}
	http.DefaultClient.CloseIdleConnections()
}
