package replicas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	callsPerSecond = 200
	clientCount    = 32
	maxInFlight    = 256
	shortLines     = 4  // not cut
	longLines      = 60 // cut
)

// load makes calls at a steady rate, in a mix of short results, results that are kept, and read-backs of those.
type load struct {
	clients []*client
	stop    context.CancelFunc
	done    chan struct{}

	short, kept, readBack, whole, renewed, skipped atomic.Int64

	streamEnds atomic.Int64 // streams that ended and were opened again

	mu       sync.Mutex
	ids      []string
	texts    map[string]int // number of the text, by id
	failures []string
}

// client is an MCP client of revision 2025-11-25 with a session.
type client struct {
	url  string
	http *http.Client

	mu      sync.Mutex
	session string
}

var ids = regexp.MustCompile(`prune_id=([^ \]"\\]+)`)

func startLoad(t *testing.T, url string) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop, done: make(chan struct{}), texts: map[string]int{}}
	for range clientCount {
		c := &client{url: url + "/mcp", http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
		if err := c.initialize(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.clients = append(l.clients, c)
	}
	var streams sync.WaitGroup
	for _, c := range l.clients[:4] {
		streams.Go(func() { l.follow(ctx, c) })
	}
	go func() {
		defer close(l.done)
		l.run(ctx)
		streams.Wait()
	}()
	t.Cleanup(l.finish)
	return l
}

// finish ends the load and waits for its calls.
func (l *load) finish() {
	l.stop()
	<-l.done
	for _, c := range l.clients {
		c.http.CloseIdleConnections()
	}
}

func (l *load) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, maxInFlight)
	pace := time.NewTicker(time.Second / callsPerSecond)
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			l.skipped.Add(1)
			continue
		}
		calls.Go(func() {
			defer func() { <-slots }()
			l.call(l.clients[n%clientCount], n)
		})
	}
}

// call makes call number n.
func (l *load) call(c *client, n int) {
	var err error
	switch {
	case n%10 == 9:
		err = l.callReadBack(c, n)
	case n%5 == 0:
		err = l.callKept(c, n)
	default:
		var got string
		if got, err = l.callTool(c, "tools::read", fmt.Sprintf(`{"n":%d,"lines":%d}`, n, shortLines)); err == nil && got != textOf(n, shortLines) {
			err = errors.New("another text: " + got)
		}
		l.short.Add(1)
	}
	if err != nil {
		l.fail(fmt.Sprintf("call %d: %v", n, err))
	}
}

func (l *load) callKept(c *client, n int) error {
	got, err := l.callTool(c, "tools::read", fmt.Sprintf(`{"n":%d,"lines":%d}`, n, longLines))
	if err != nil {
		return err
	}
	found := ids.FindStringSubmatch(got)
	if found == nil { // the store did not answer in time
		l.whole.Add(1)
		if got != textOf(n, longLines) {
			return errors.New("neither whole nor cut: " + got)
		}
		return nil
	}
	l.kept.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, found[1])
	l.texts[found[1]] = n
	return nil
}

// callReadBack reads one of the texts that were kept so far, whichever replica kept it.
func (l *load) callReadBack(c *client, n int) error {
	l.mu.Lock()
	if len(l.ids) == 0 {
		l.mu.Unlock()
		return nil
	}
	id := l.ids[n*7919%len(l.ids)]
	l.mu.Unlock()
	l.readBack.Add(1)
	return l.recover(c, id)
}

func (l *load) recover(c *client, id string) error {
	l.mu.Lock()
	want := textOf(l.texts[id], longLines)
	l.mu.Unlock()
	got, err := l.callTool(c, "recover_text", fmt.Sprintf(`{"prune_id":%q}`, id))
	if err == nil && got != want {
		err = fmt.Errorf("%s recovered %d bytes, want %d: %.200s", id, len(got), len(want), got)
	}
	return err
}

// recoverAll reads back everything that was kept.
func (l *load) recoverAll(t *testing.T) {
	t.Helper()
	work := make(chan string)
	var readers sync.WaitGroup
	for _, c := range l.clients[:8] {
		readers.Go(func() {
			for id := range work {
				if err := l.recover(c, id); err != nil {
					l.fail("afterwards: " + err.Error())
				}
			}
		})
	}
	for _, id := range l.ids {
		work <- id
	}
	close(work)
	readers.Wait()
}

func (l *load) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+text)
}

// callTool calls a tool and returns the text of its result. A client whose session ended starts another, as the
// specification says, and calls again.
func (l *load) callTool(c *client, name, arguments string) (string, error) {
	session := c.currentSession()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
	status, reply, err := c.post(context.Background(), session, body)
	if err == nil && status == http.StatusNotFound {
		l.renewed.Add(1)
		if err := c.renew(context.Background(), session); err != nil {
			return "", err
		}
		status, reply, err = c.post(context.Background(), c.currentSession(), body)
	}
	if err != nil {
		return "", err
	}
	var result struct {
		Result struct {
			IsError bool
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(reply, &result); err != nil || status != http.StatusOK || result.Result.IsError || len(result.Result.Content) == 0 {
		return "", fmt.Errorf("HTTP %d: %.300s", status, reply)
	}
	var text strings.Builder
	for _, part := range result.Result.Content {
		text.WriteString(part.Text)
	}
	return text.String(), nil
}

func (c *client) currentSession() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// renew starts another session, once for all calls that found the old one ended.
func (c *client) renew(ctx context.Context, ended string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != ended {
		return nil
	}
	return c.startSession(ctx)
}

func (c *client) initialize(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startSession(ctx)
}

// startSession starts a session; the lock is held.
func (c *client) startSession(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("initialize: HTTP %d, %w", resp.StatusCode, err)
	}
	c.session = resp.Header.Get("Mcp-Session-Id")
	_, _, err = c.post(ctx, c.session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return err
}

func (c *client) newRequest(ctx context.Context, method, session, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	return req, nil
}

func (c *client) post(ctx context.Context, session, body string) (int, []byte, error) {
	req, err := c.newRequest(ctx, http.MethodPost, session, body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if _, data, ok := strings.Cut(string(reply), "data: "); ok && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		reply = []byte(data)
	}
	return resp.StatusCode, reply, err
}

// follow keeps a client's event stream open. A replica that stops ends its streams properly: the client opens another.
func (l *load) follow(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		err := c.readStream(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.fail("event stream: " + err.Error())
			time.Sleep(100 * time.Millisecond)
			continue
		}
		l.streamEnds.Add(1)
	}
}

func (c *client) readStream(ctx context.Context) error {
	session := c.currentSession()
	req, err := c.newRequest(ctx, http.MethodGet, session, "")
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: c.http.Transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return c.renew(ctx, session)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
	}
	return lines.Err()
}
