//go:build linux

package chaos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ask is one request of a client.
type ask struct {
	id     string // JSON: 1 and "1" are two ids
	method string
	params string
	token  string // JSON: a progress token
	note   func(frame)
}

// answer is everything that came back for it.
type answer struct {
	frame
	at      time.Time // when the response was read
	status  int
	closing bool    // the connection will not be used again
	before  []frame // notifications on the way
	after   []frame // what came behind the response, where nothing should
}

// peer is a client of whatever is under test.
type peer interface {
	ask(ctx context.Context, a ask) (answer, error)
	notify(ctx context.Context, method, params string) error
}

// errUnanswered is a stream that ended in good order without a response.
var errUnanswered = errors.New("the stream ended without a response")

// What a client can answer. A gateway may give a client that can be asked a child of its own; one
// that cannot shares with all others.
const (
	answersNothing = `{}`
	answersAll     = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`
)

// body writes the params with the metadata of the era.
func (a ask) body(e era, can string) string {
	p := a.params
	if p == "" {
		p = "{}"
	}
	var meta []string
	if e == modern {
		meta = append(meta, fmt.Sprintf(`%q:%q,"io.modelcontextprotocol/clientInfo":{"name":"chaos","version":"1"},"io.modelcontextprotocol/clientCapabilities":%s`,
			metaVersion, modern, can))
	}
	if a.token != "" {
		meta = append(meta, `"progressToken":`+a.token)
	}
	if len(meta) > 0 {
		p = into(p, `"_meta":{`+strings.Join(meta, ",")+`}`)
	}
	return p
}

// webClient speaks Streamable HTTP in either era. It forgives nothing and repeats nothing.
type webClient struct {
	url     string
	era     era
	http    *http.Client
	session string
	can     string             // its capabilities
	answers func(frame) string // the result for a request of the server's
}

// dial opens a session where the era has one.
func dial(ctx context.Context, h *http.Client, url string, e era, can string) (*webClient, error) {
	c := &webClient{url: url, era: e, http: h, can: can, answers: obliging}
	if e != legacy {
		return c, nil
	}
	got, err := c.ask(ctx, ask{id: "0", method: "initialize", params: fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"chaos","version":"1"}}`, e, can)})
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	if got.Result == nil {
		return nil, fmt.Errorf("initialize: HTTP %d, %s", got.status, got.Error)
	}
	return c, c.notify(ctx, "notifications/initialized", "{}")
}

// obliging answers an elicitation with the question it was asked.
func obliging(f frame) string {
	return fmt.Sprintf(`{"action":"accept","content":{"answer":%s}}`, quote(f.read().Message))
}

func (c *webClient) post(ctx context.Context, message []byte, method, name string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(string(message)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method != "initialize" && c.era != plain {
		req.Header.Set("Mcp-Protocol-Version", string(c.era))
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.era == modern && method != "" {
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", headerValue(name))
		}
	}
	return c.http.Do(req)
}

// headerValue writes a name as a header can hold it.
func headerValue(name string) string {
	for _, r := range name {
		if r < 0x20 || r > 0x7e {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
		}
	}
	return name
}

func (c *webClient) notify(ctx context.Context, method, params string) error {
	resp, err := c.post(ctx, notification(method, params), method, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s: HTTP %d", method, resp.StatusCode)
	}
	return nil
}

func (c *webClient) ask(ctx context.Context, a ask) (answer, error) {
	body := a.body(c.era, c.can)
	p := frame{Params: json.RawMessage(body)}.read()
	name := p.Name
	if a.method == "resources/read" {
		name = p.URI
	}
	resp, err := c.post(ctx, request(a.id, a.method, body), a.method, name)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && a.method == "initialize" {
		c.session = id
	}
	got := answer{status: resp.StatusCode, closing: resp.Close}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		return c.readStream(ctx, resp.Body, a, got)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return got, err
	}
	got.at = time.Now()
	if kind != "application/json" {
		return got, fmt.Errorf("HTTP %d, %s: %.120q", resp.StatusCode, kind, data)
	}
	got.frame, err = parse(data)
	return got, err
}

// readStream reads to the stream's end, past the response.
func (c *webClient) readStream(ctx context.Context, body io.Reader, a ask, got answer) (answer, error) {
	for events := newSSEReader(body); ; {
		e, err := events.next()
		read := time.Now()
		switch {
		case errors.Is(err, io.EOF) && got.isResponse():
			return got, nil
		case errors.Is(err, io.EOF):
			return got, errUnanswered
		case err != nil && got.isResponse():
			return got, nil //nolint:nilerr // the answer was whole
		case err != nil:
			return got, err
		}
		f, err := parse([]byte(e.data))
		if err != nil {
			return got, err
		}
		if f.isResponse() && !got.isResponse() {
			got.at = read // before it was parsed, which is our own time
		}
		c.sort(ctx, f, a, &got)
	}
}

// sort puts a message of the stream where it belongs.
func (c *webClient) sort(ctx context.Context, f frame, a ask, got *answer) {
	switch {
	case got.isResponse():
		got.after = append(got.after, f)
	case f.isResponse():
		got.frame = f
	case f.isRequest():
		go c.oblige(ctx, f)
	default:
		if got.before = append(got.before, f); a.note != nil {
			a.note(f)
		}
	}
}

// oblige answers a request of the server's.
func (c *webClient) oblige(ctx context.Context, f frame) {
	resp, err := c.post(ctx, response(f.ID, c.answers(f)), "", "")
	if err == nil {
		_ = resp.Body.Close()
	}
}

// leave ends a legacy session.
func (c *webClient) leave(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Mcp-Session-Id", c.session)
	req.Header.Set("Mcp-Protocol-Version", string(c.era))
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("DELETE: HTTP %d", resp.StatusCode)
	}
	return nil
}

// stream is a standing stream of a legacy session, or a modern subscription.
type stream struct {
	mu     sync.Mutex
	frames []frame
	err    error // why it ended
	ended  bool
	result frame // a modern subscription's last word
	done   chan struct{}
	cancel context.CancelFunc
}

func (s *stream) add(f frame) {
	s.mu.Lock()
	s.frames = append(s.frames, f)
	s.mu.Unlock()
}

func (s *stream) end(result frame, err error) {
	s.mu.Lock()
	s.err, s.ended, s.result = err, true, result
	s.mu.Unlock()
	close(s.done)
}

// count is how many notifications of a method have come.
func (s *stream) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, f := range s.frames {
		if f.Method == method {
			n++
		}
	}
	return n
}

// state tells whether the stream still runs, and if not, why.
func (s *stream) state() (ended bool, result frame, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.result, s.err
}

// close ends it from this side.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// listen opens the stream of a legacy session.
func (c *webClient) listen(ctx context.Context) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", string(c.era))
	req.Header.Set("Mcp-Session-Id", c.session)
	resp, err := c.http.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("GET: HTTP %d", resp.StatusCode)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer resp.Body.Close()
		for events := newSSEReader(resp.Body); ; {
			e, err := events.next()
			if err != nil {
				s.end(frame{}, err)
				return
			}
			if f, err := parse([]byte(e.data)); err == nil {
				s.add(f)
			}
		}
	}()
	return s, nil
}

// subscribe opens a modern subscription and waits for its acknowledgment.
func subscribe(ctx context.Context, c peer, id, filter string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{done: make(chan struct{}), cancel: cancel}
	acknowledged := make(chan struct{}, 1)
	go func() {
		got, err := c.ask(ctx, ask{id: id, method: "subscriptions/listen", params: `{"notifications":` + filter + `}`, note: func(f frame) {
			s.add(f)
			if f.Method == "notifications/subscriptions/acknowledged" {
				acknowledged <- struct{}{}
			}
		}})
		s.end(got.frame, err)
	}()
	select {
	case <-acknowledged:
		return s, nil
	case <-s.done:
		cancel()
		return nil, fmt.Errorf("subscriptions/listen: %w %s", s.err, s.result.Error)
	case <-time.After(10 * time.Second):
		s.close()
		return nil, errors.New("subscriptions/listen was not acknowledged")
	}
}
