// Package faultproxy is a TCP proxy for tests that delays, drops and cuts connections on request.
package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one address. Its faults apply to open connections, too.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	delay   time.Duration
	dropped chan struct{} // nil, or closed when bytes flow again
	refuses bool
	conns   map[net.Conn]bool
	closed  chan struct{}
	running sync.WaitGroup
}

// Start starts a proxy that ends with the test.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}, closed: make(chan struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Delay delays what the server sends by so long, without limiting how much it sends.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Drop holds all bytes of both directions back, as a network that loses every packet, until Heal.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped == nil {
		p.dropped = make(chan struct{})
	}
}

// Cut closes all connections, and new ones as soon as they are made, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.refuses = 0, false
	if p.dropped != nil {
		close(p.dropped)
		p.dropped = nil
	}
}

func (p *Proxy) close() {
	close(p.closed)
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.addConns(client, server) {
		return
	}
	defer p.removeConns(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.forward(server, client, false) })
	both.Go(func() { p.forward(client, server, true) })
	both.Wait()
}

func (p *Proxy) addConns(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = !p.refuses
	}
	return !p.refuses
}

func (p *Proxy) removeConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

type chunk struct {
	data []byte
	due  time.Time
}

// forward copies bytes in order, each when it is due. When one direction ends, so does the other.
func (p *Proxy) forward(to, from net.Conn, delayed bool) {
	chunks := make(chan chunk, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer func() { _ = to.Close() }()
		for c := range chunks {
			if !p.hold(c.due) {
				return
			}
			if _, err := to.Write(c.data); err != nil {
				_ = from.Close()
				break
			}
		}
		for range chunks { // so that the reader is not stuck
		}
	})
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 {
			due := time.Now()
			if delayed {
				p.mu.Lock()
				due = due.Add(p.delay)
				p.mu.Unlock()
			}
			chunks <- chunk{buf[:n], due}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			break
		}
	}
	close(chunks)
	writer.Wait()
}

// hold waits until bytes are due and not dropped; false when the proxy closes.
func (p *Proxy) hold(due time.Time) bool {
	wait := time.NewTimer(time.Until(due))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-p.closed:
		return false
	}
	p.mu.Lock()
	dropped := p.dropped
	p.mu.Unlock()
	if dropped == nil {
		return true
	}
	select {
	case <-dropped:
		return true
	case <-p.closed:
		return false
	}
}
