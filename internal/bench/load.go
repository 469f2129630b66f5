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

// clients is how many agents ask at once.
const clients = 8

// agent is a client with one connection. It writes requests that are ready as they are and reads
// little, so that what is measured is not itself.
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

// send writes a request.
func (a *agent) send(path string, pieces ...[]byte) error {
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

// ask sends the request of a turn and says how many bytes the provider got of it.
func (a *agent) ask(t *talk, turn int) (int64, error) {
	body, tail := t.request(turn)
	if err := a.send(t.path, body, tail); err != nil {
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

// provider answers every request with a few bytes when it has read it, and says how long it was;
// one that asks for a stream gets that.
func provider() http.Handler {
	room := sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf, ok := room.Get().(*[]byte)
		if !ok {
			return
		}
		defer room.Put(buf)
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

// work is what every door is asked to do in a round: each agent sends some requests, one after the
// other.
type work struct {
	talks []*talk // of each agent
	turns []int   // the requests, by their last turn
}

// less is an eighth of the work: enough to see how fast a door is that is slower than others.
func (w work) less() work {
	var turns []int
	for i := 7; i < len(w.turns); i += 8 {
		turns = append(turns, w.turns[i])
	}
	w.turns = turns
	return w
}

// pace is what a round came to.
type pace struct {
	rate   float64       // requests a second
	cpu    time.Duration // of the door's process, for a request
	passed float64       // the share of the bytes sent that the provider got
}

// through sends the work through a door.
func (w work) through(ctx context.Context, d *door) (p pace, err error) {
	agents := make([]*agent, len(w.talks))
	for i := range agents {
		if agents[i], err = dial(ctx, d.addr); err != nil {
			return p, err
		}
		defer func() { _ = agents[i].conn.Close() }()
	}
	var sent, got atomic.Int64
	failures := make([]error, len(agents))
	before, began := d.spent(), time.Now()
	var wg sync.WaitGroup
	for i, a := range agents {
		wg.Go(func() {
			for _, turn := range w.turns {
				n, err := a.ask(w.talks[i], turn)
				if err != nil {
					failures[i] = fmt.Errorf("through %s: %w", d.name, err)
					return
				}
				got.Add(n)
				sent.Add(int64(w.talks[i].ends[turn-1] + len(w.talks[i].tail)))
			}
		})
	}
	wg.Wait()
	took, count := time.Since(began), len(agents)*len(w.turns)
	p.rate = float64(count) / took.Seconds()
	p.cpu = (d.spent() - before) / time.Duration(count)
	p.passed = float64(got.Load()) / float64(max(1, sent.Load()))
	return p, errors.Join(failures...)
}
