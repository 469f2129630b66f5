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

// executor is a provider that counts what it executes: every request that it has as a whole. how says
// of each connection, in order, what it does; the last goes on.
type executor struct {
	net.Listener
	executed atomic.Int64
}

type conduct int

const (
	answers200   conduct = iota
	closesUnread         // reads nothing, and ends the connection
	closesHalf           // ends it in the middle of the request
	executesOnly         // executes the request, and ends the connection without a word
	executesHead         // executes the request, and ends the connection after the head of its answer
	declines429
	fails500
)

func newExecutor(t *testing.T, how ...conduct) *executor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &executor{Listener: l}
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

func (e *executor) serve(conn net.Conn, how conduct) {
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

// A request is made again where the provider cannot have executed it: it was not delivered as a whole,
// or the provider answered that it failed or would not. One that was delivered and not answered may have
// been executed, and billed: it is made again only by the client, or where the client says that twice is
// as good as once. A configured fallback is asked all the same.
func TestARequestIsExecutedAtMostOnce(t *testing.T) {
	small := wires["completions"].request(false)
	large := `{"model":"m-1","messages":[{"role":"user","content":"` + strings.Repeat("x", 8<<20) + `"}]}`
	for name, tt := range map[string]struct {
		how      []conduct
		body     string
		key      string // Idempotency-Key
		spare    bool   // there is a fallback
		status   int
		executed int64 // by the first
		more     int64 // by the fallback
	}{
		"not read":                   {how: []conduct{closesUnread, answers200}, body: large, status: 200, executed: 1},
		"half of it was read":        {how: []conduct{closesHalf, answers200}, body: large, status: 200, executed: 1},
		"declined":                   {how: []conduct{declines429, answers200}, body: small, status: 200, executed: 1},
		"failed":                     {how: []conduct{fails500, answers200}, body: small, status: 200, executed: 1},
		"executed, no answer":        {how: []conduct{executesOnly, answers200}, body: small, status: 502, executed: 1},
		"executed, no answer, large": {how: []conduct{executesOnly, answers200}, body: large, status: 502, executed: 1},
		"executed, only a head":      {how: []conduct{executesHead, answers200}, body: small, status: 502, executed: 1},
		"executed, twice is fine":    {how: []conduct{executesOnly, answers200}, body: small, key: "k1", status: 200, executed: 2},
		"executed, and a fallback":   {how: []conduct{executesOnly}, body: small, spare: true, status: 200, executed: 1, more: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newExecutor(t, tt.how...), newExecutor(t, answers200)
			entries := []chat.Provider{provider("one", "openai", "http://"+one.Addr().String())}
			if tt.spare {
				entries[0].Fallback = []string{"two"}
				entries = append(entries, provider("two", "openai", "http://"+two.Addr().String(), func(p *chat.Provider) { p.Models = []string{"other"} }))
			}
			g := open(t, entries)
			head := http.Header{}
			if tt.key != "" {
				head.Set("Idempotency-Key", tt.key)
			}
			resp, body := g.post(t, "/v1/chat/completions", tt.body, head)
			if resp.StatusCode != tt.status || tt.status == 502 && !strings.Contains(body, "may have been executed") {
				t.Errorf("got %d %.200s", resp.StatusCode, body)
			}
			if a, b := one.executed.Load(), two.executed.Load(); a != tt.executed || b != tt.more {
				t.Errorf("executed %d and %d times, want %d and %d", a, b, tt.executed, tt.more)
			}
		})
	}
}
