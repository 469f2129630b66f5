// Package mcpclient is a strict MCP client for tests, over Streamable HTTP and stdio, in either protocol
// revision. It repairs and retries nothing.
package mcpclient

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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// Request is a request of the client.
type Request struct {
	ID             string // JSON: 1 and "1" are different ids
	Method         string
	Params         string
	ProgressToken  string // JSON
	OnNotification func(mcpwire.Message)
}

// Reply is everything received for a request.
type Reply struct {
	mcpwire.Message
	At            time.Time // when the response was read
	Status        int
	Closing       bool // the server closes the connection
	Notifications []mcpwire.Message
	After         []mcpwire.Message // messages after the response: none are allowed
}

// Client is a client over any transport.
type Client interface {
	Call(ctx context.Context, a Request) (Reply, error)
	Notify(ctx context.Context, method, params string) error
}

var errNoResponse = errors.New("the stream ended without a response")

// Client capabilities. A gateway may start a child of its own for a client that answers requests; clients without
// capabilities share one.
const (
	NoCapabilities  = `{}`
	AllCapabilities = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`
)

// encodeParams adds the metadata of the revision to the params.
func (a Request) encodeParams(e mcpwire.Revision, can string) string {
	p := a.Params
	if p == "" {
		p = "{}"
	}
	var meta []string
	if e == mcpwire.Modern {
		meta = append(meta, fmt.Sprintf(`%q:%q,"io.modelcontextprotocol/clientInfo":{"name":"chaos","version":"1"},"io.modelcontextprotocol/clientCapabilities":%s`,
			mcpwire.MetaVersion, mcpwire.Modern, can))
	}
	if a.ProgressToken != "" {
		meta = append(meta, `"progressToken":`+a.ProgressToken)
	}
	if len(meta) > 0 {
		p = mcpwire.WithMember(p, `"_meta":{`+strings.Join(meta, ",")+`}`)
	}
	return p
}

// HTTPClient is a client over Streamable HTTP.
type HTTPClient struct {
	URL           string
	Revision      mcpwire.Revision
	HTTP          *http.Client
	sessionID     string
	Capabilities  string
	AnswerRequest func(mcpwire.Message) string // returns the result for a server's request
}

// ConnectHTTP returns a client, in the legacy revision with an initialized session.
func ConnectHTTP(ctx context.Context, h *http.Client, url string, e mcpwire.Revision, can string) (*HTTPClient, error) {
	c := &HTTPClient{URL: url, Revision: e, HTTP: h, Capabilities: can, AnswerRequest: AcceptElicitation}
	if e != mcpwire.Legacy {
		return c, nil
	}
	got, err := c.Call(ctx, Request{ID: "0", Method: "initialize", Params: fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"chaos","version":"1"}}`, e, can)})
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	if got.Result == nil {
		return nil, fmt.Errorf("initialize: HTTP %d, %s", got.Status, got.Error)
	}
	return c, c.Notify(ctx, "notifications/initialized", "{}")
}

// AcceptElicitation accepts an elicitation with its own question as the answer.
func AcceptElicitation(f mcpwire.Message) string {
	return fmt.Sprintf(`{"action":"accept","content":{"answer":%s}}`, mcpwire.Quote(f.ParseParams().Message))
}

func (c *HTTPClient) postMessage(ctx context.Context, message []byte, method, name string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, strings.NewReader(string(message)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method != "initialize" && c.Revision != mcpwire.NoRevision {
		req.Header.Set("Mcp-Protocol-Version", string(c.Revision))
	}
	if c.sessionID != "" {
		req.Header.Set("Mcp-Session-Id", c.sessionID)
	}
	if c.Revision == mcpwire.Modern && method != "" {
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", encodeHeader(name))
		}
	}
	return c.HTTP.Do(req)
}

// encodeHeader encodes a name for a header.
func encodeHeader(name string) string {
	for _, r := range name {
		if r < 0x20 || r > 0x7e {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
		}
	}
	return name
}

// Notify sends a notification.
func (c *HTTPClient) Notify(ctx context.Context, method, params string) error {
	resp, err := c.postMessage(ctx, mcpwire.NewNotification(method, params), method, "")
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

// Call sends a request and reads its reply.
func (c *HTTPClient) Call(ctx context.Context, a Request) (Reply, error) {
	body := a.encodeParams(c.Revision, c.Capabilities)
	p := mcpwire.Message{Params: json.RawMessage(body)}.ParseParams()
	name := p.Name
	if a.Method == "resources/read" {
		name = p.URI
	}
	resp, err := c.postMessage(ctx, mcpwire.NewRequest(a.ID, a.Method, body), a.Method, name)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && a.Method == "initialize" {
		c.sessionID = id
	}
	got := Reply{Status: resp.StatusCode, Closing: resp.Close}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		return c.readReplyStream(ctx, resp.Body, a, got)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return got, err
	}
	got.At = time.Now()
	if kind != "application/json" {
		return got, fmt.Errorf("HTTP %d, %s: %.120q", resp.StatusCode, kind, data)
	}
	got.Message, err = mcpwire.ParseMessage(data)
	return got, err
}

// readReplyStream reads the stream to its end, past the response.
func (c *HTTPClient) readReplyStream(ctx context.Context, body io.Reader, a Request, got Reply) (Reply, error) {
	for events := mcpwire.NewEventReader(body); ; {
		e, err := events.Next()
		read := time.Now()
		switch {
		case errors.Is(err, io.EOF) && got.IsResponse():
			return got, nil
		case errors.Is(err, io.EOF):
			return got, errNoResponse
		case err != nil && got.IsResponse():
			return got, nil //nolint:nilerr // the response is complete
		case err != nil:
			return got, err
		}
		f, err := mcpwire.ParseMessage([]byte(e.Data))
		if err != nil {
			return got, err
		}
		if f.IsResponse() && !got.IsResponse() {
			got.At = read // without the time for parsing
		}
		c.handleMessage(ctx, f, a, &got)
	}
}

// handleMessage adds a message of the stream to the reply, or answers it if it is a request.
func (c *HTTPClient) handleMessage(ctx context.Context, f mcpwire.Message, a Request, got *Reply) {
	switch {
	case got.IsResponse():
		got.After = append(got.After, f)
	case f.IsResponse():
		got.Message = f
	case f.IsRequest():
		go c.answerRequest(ctx, f)
	default:
		if got.Notifications = append(got.Notifications, f); a.OnNotification != nil {
			a.OnNotification(f)
		}
	}
}

// answerRequest answers a server's request.
func (c *HTTPClient) answerRequest(ctx context.Context, f mcpwire.Message) {
	resp, err := c.postMessage(ctx, mcpwire.NewResponse(f.ID, c.AnswerRequest(f)), "", "")
	if err == nil {
		_ = resp.Body.Close()
	}
}

// DeleteSession ends a legacy session.
func (c *HTTPClient) DeleteSession(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.URL, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Mcp-Session-Id", c.sessionID)
	req.Header.Set("Mcp-Protocol-Version", string(c.Revision))
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("DELETE: HTTP %d", resp.StatusCode)
	}
	return nil
}

// Stream is the GET stream of a legacy session, or a modern subscription.
type Stream struct {
	mu     sync.Mutex
	frames []mcpwire.Message
	err    error // why it ended
	ended  bool
	result mcpwire.Message // the response to a modern subscription
	done   chan struct{}
	cancel context.CancelFunc
}

func (s *Stream) addMessage(f mcpwire.Message) {
	s.mu.Lock()
	s.frames = append(s.frames, f)
	s.mu.Unlock()
}

func (s *Stream) markEnded(result mcpwire.Message, err error) {
	s.mu.Lock()
	s.err, s.ended, s.result = err, true, result
	s.mu.Unlock()
	close(s.done)
}

// Count returns the number of received notifications of a method.
func (s *Stream) Count(method string) int {
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

// State reports whether the stream has ended, and how.
func (s *Stream) State() (ended bool, result mcpwire.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.result, s.err
}

// Close closes the stream.
func (s *Stream) Close() {
	s.cancel()
	<-s.done
}

// OpenStream opens the GET stream of a legacy session.
func (c *HTTPClient) OpenStream(ctx context.Context) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", string(c.Revision))
	req.Header.Set("Mcp-Session-Id", c.sessionID)
	resp, err := c.HTTP.Do(req) //nolint:bodyclose // closed by the goroutine below
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET: HTTP %d", resp.StatusCode)
	}
	s := &Stream{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer resp.Body.Close()
		for events := mcpwire.NewEventReader(resp.Body); ; {
			e, err := events.Next()
			if err != nil {
				s.markEnded(mcpwire.Message{}, err)
				return
			}
			if f, err := mcpwire.ParseMessage([]byte(e.Data)); err == nil {
				s.addMessage(f)
			}
		}
	}()
	return s, nil
}

// Subscribe opens a modern subscription and waits for its acknowledgment.
func Subscribe(ctx context.Context, c Client, id, filter string) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{done: make(chan struct{}), cancel: cancel}
	acknowledged := make(chan struct{}, 1)
	go func() {
		got, err := c.Call(ctx, Request{ID: id, Method: "subscriptions/listen", Params: `{"notifications":` + filter + `}`, OnNotification: func(f mcpwire.Message) {
			s.addMessage(f)
			if f.Method == "notifications/subscriptions/acknowledged" {
				acknowledged <- struct{}{}
			}
		}})
		s.markEnded(got.Message, err)
	}()
	select {
	case <-acknowledged:
		return s, nil
	case <-s.done:
		cancel()
		return nil, fmt.Errorf("subscriptions/listen: %w %s", s.err, s.result.Error)
	case <-time.After(10 * time.Second):
		s.Close()
		return nil, errors.New("subscriptions/listen was not acknowledged")
	}
}
