package chat_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
)

// countingProvider is a provider that counts the requests it executes: those it has received completely. Each
// connection gets the next behavior; the last one repeats.
type countingProvider struct {
	net.Listener
	executed atomic.Int64
}

type connBehavior int

const (
	answers200   connBehavior = iota
	closesUnread              // closes the connection without reading
	closesHalf                // closes it in the middle of the request
	executesOnly              // executes the request and closes without a response
	executesHead              // executes the request and closes after the response header
	declines429
	fails500
)

func newCountingProvider(t *testing.T, how ...connBehavior) *countingProvider {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &countingProvider{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(conn, how[min(i, len(how)-1)])
		}
	}()
	return e
}

func (e *countingProvider) serve(conn net.Conn, how connBehavior) {
	defer conn.Close()
	reset := func() {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, so that the other side cannot go on writing
		}
	}
	if how == closesUnread {
		reset()
		return
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if how == closesHalf {
		_, _ = io.CopyN(io.Discard, r.Body, 1024)
		reset()
		return
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
		return
	}
	switch how {
	case declines429:
		_, _ = io.WriteString(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		return
	case fails500:
		_, _ = io.WriteString(conn, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		return
	default:
	}
	e.executed.Add(1)
	switch how {
	case executesHead:
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
	case answers200:
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
	default:
	}
}

// A request is retried only if the provider cannot have executed it: it was not delivered completely, or the
// provider answered that it failed or refused. A request that was delivered and not answered may have been
// executed and billed: it is retried only with an Idempotency-Key. A configured fallback is tried in any case.
func TestARequestIsExecutedAtMostOnce(t *testing.T) {
	small := wires["completions"].request(false)
	large := `{"model":"m-1","messages":[{"role":"user","content":"` + strings.Repeat("x", 8<<20) + `"}]}`
	for name, tt := range map[string]struct {
		how              []connBehavior
		body             string
		key              string // Idempotency-Key
		fallback         bool
		status           int
		executed         int64 // by the first provider
		fallbackExecuted int64
	}{
		"not read":                   {how: []connBehavior{closesUnread, answers200}, body: large, status: 200, executed: 1},
		"half of it was read":        {how: []connBehavior{closesHalf, answers200}, body: large, status: 200, executed: 1},
		"declined":                   {how: []connBehavior{declines429, answers200}, body: small, status: 200, executed: 1},
		"failed":                     {how: []connBehavior{fails500, answers200}, body: small, status: 200, executed: 1},
		"executed, no answer":        {how: []connBehavior{executesOnly, answers200}, body: small, status: 502, executed: 1},
		"executed, no answer, large": {how: []connBehavior{executesOnly, answers200}, body: large, status: 502, executed: 1},
		"executed, only a head":      {how: []connBehavior{executesHead, answers200}, body: small, status: 502, executed: 1},
		"executed, idempotency key":  {how: []connBehavior{executesOnly, answers200}, body: small, key: "k1", status: 200, executed: 2},
		"executed, fallback":         {how: []connBehavior{executesOnly}, body: small, fallback: true, status: 200, executed: 1, fallbackExecuted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newCountingProvider(t, tt.how...), newCountingProvider(t, answers200)
			entries := []chat.Provider{providerConfig("one", "openai", "http://"+one.Addr().String())}
			if tt.fallback {
				entries[0].Fallback = []string{"two"}
				entries = append(entries, providerConfig("two", "openai", "http://"+two.Addr().String(), func(p *chat.Provider) { p.Models = []string{"other"} }))
			}
			g := newGateway(t, entries)
			header := http.Header{}
			if tt.key != "" {
				header.Set("Idempotency-Key", tt.key)
			}
			resp, body := g.post(t, "/v1/chat/completions", tt.body, header)
			if resp.StatusCode != tt.status || tt.status == 502 && !strings.Contains(body, "may have been executed") {
				t.Errorf("got %d %.200s", resp.StatusCode, body)
			}
			if a, b := one.executed.Load(), two.executed.Load(); a != tt.executed || b != tt.fallbackExecuted {
				t.Errorf("executed %d and %d times, want %d and %d", a, b, tt.executed, tt.fallbackExecuted)
			}
		})
	}
}
