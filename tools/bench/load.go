package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clients is the number of concurrent agents.
const clients = 8

// agent is a client with one connection. It writes prepared requests and reads little, so that it does not
// measure itself.
type agent struct {
	conn net.Conn
	read *bufio.Reader
}

func dial(ctx context.Context, address string) (*agent, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &agent{conn: conn, read: bufio.NewReader(conn)}, nil
}

// writeRequest writes a request.
func (a *agent) writeRequest(path string, pieces ...[]byte) error {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, size)
	if err := a.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	all := append(net.Buffers{head}, pieces...)
	_, err := all.WriteTo(a.conn)
	return err
}

// sendTurn sends the request of a turn and returns how many bytes the provider received.
func (a *agent) sendTurn(t *conversation, turn int) (int64, error) {
	body, tail := t.request(turn)
	return a.post(t.path, body, tail)
}

// post sends a request and returns how many bytes the provider received.
func (a *agent) post(path string, pieces ...[]byte) (int64, error) {
	if err := a.writeRequest(path, pieces...); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(a.read, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s %w", resp.Status, text, err)
	}
	_, after, _ := strings.Cut(string(text), `"got":`)
	got, _, _ := strings.Cut(after, ",")
	return strconv.ParseInt(got, 10, 64)
}

// provider replies to every request with its length, or with a stream if the query asks for one.
func provider() http.Handler {
	buffers := sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf, ok := buffers.Get().(*[]byte)
		if !ok {
			return
		}
		defer buffers.Put(buf)
		var got int64
		for {
			n, err := r.Body.Read(*buf)
			got += int64(n)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
		}
		if r.URL.Query().Has("stream") {
			stream(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","model":"m-1","got":%d,"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, got, got/4)
	})
}

// workload is the work of a round: each agent sends some requests, one after the other.
type workload struct {
	conversations []*conversation // of each agent
	turns         []int           // the requests, by their last turn
}

// reduced is an eighth of the workload, for a slow proxy.
func (w workload) reduced() workload {
	var turns []int
	for i := 7; i < len(w.turns); i += 8 {
		turns = append(turns, w.turns[i])
	}
	w.turns = turns
	return w
}

// roundResult is the outcome of a round.
type roundResult struct {
	rate   float64       // requests a second
	cpu    time.Duration // of the proxy's process, per request
	passed float64       // share of the sent bytes that the provider received
}

// sendThrough sends the workload through a proxy.
func (w workload) sendThrough(ctx context.Context, d *proxy) (p roundResult, err error) {
	agents := make([]*agent, len(w.conversations))
	for i := range agents {
		if agents[i], err = dial(ctx, d.addr); err != nil {
			return p, err
		}
		defer func() { _ = agents[i].conn.Close() }()
	}
	var sent, got atomic.Int64
	failures := make([]error, len(agents))
	before, began := d.cpuTime(), time.Now()
	var wg sync.WaitGroup
	for i, a := range agents {
		wg.Go(func() {
			for _, turn := range w.turns {
				n, err := a.sendTurn(w.conversations[i], turn)
				if err != nil {
					failures[i] = fmt.Errorf("through %s: %w", d.name, err)
					return
				}
				got.Add(n)
				sent.Add(int64(w.conversations[i].ends[turn-1] + len(w.conversations[i].tail)))
			}
		})
	}
	wg.Wait()
	took, count := time.Since(began), len(agents)*len(w.turns)
	p.rate = float64(count) / took.Seconds()
	p.cpu = (d.cpuTime() - before) / time.Duration(count)
	p.passed = float64(got.Load()) / float64(max(1, sent.Load()))
	return p, errors.Join(failures...)
}
