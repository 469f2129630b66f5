package s3server

import (
	"context"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what the proxy does to requests.
type Fault struct {
	Delay  time.Duration // before a request goes to the server
	Refuse float64       // the part of the requests that get 503
	Drop   float64       // the part of the requests whose connection is closed after the server has answered

	// After is called when the server has answered a PUT of a segment, before the client gets the answer.
	After func()
}

// Proxy forwards requests to the server, with the faults that a test wants, and counts them.
type Proxy struct {
	URL string // for clients

	server *http.Server
	mu     sync.Mutex
	fault  Fault
	counts map[string]*atomic.Int64
}

func newProxy(address string) (*Proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// The signature covers the host that the client named, so that it goes on as it is.
	p := &Proxy{URL: "http://" + l.Addr().String(), counts: map[string]*atomic.Int64{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: address})
			r.Out.Host = r.In.Host
		},
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		ErrorLog:     log.New(discard{}, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if there was no proxy
	}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log.New(discard{}, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(forward, w, r)
	})}
	go func() { _ = p.server.Serve(l) }() // until Close
	return p, nil
}

type discard struct{}

// Write discards what the proxy would log.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (p *Proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	fault := p.fault
	count := p.counter(r.Method)
	p.mu.Unlock()
	count.Add(1)
	if fault.Delay > 0 {
		time.Sleep(fault.Delay)
	}
	if rand.Float64() < fault.Refuse {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`))
		return
	}
	if fault.After == nil && fault.Drop == 0 {
		forward.ServeHTTP(w, r)
		return
	}
	reply := &heldReply{header: http.Header{}}
	forward.ServeHTTP(reply, r)
	if fault.After != nil && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/segments/") && reply.status < 300 {
		fault.After()
	}
	if rand.Float64() < fault.Drop {
		panic(http.ErrAbortHandler)
	}
	for name, values := range reply.header {
		w.Header()[name] = values
	}
	w.WriteHeader(reply.status)
	_, _ = w.Write(reply.body)
}

// heldReply holds back a reply.
type heldReply struct {
	header http.Header
	status int
	body   []byte
}

// Header implements [http.ResponseWriter].
func (h *heldReply) Header() http.Header { return h.header }

// WriteHeader implements [http.ResponseWriter].
func (h *heldReply) WriteHeader(status int) { h.status = status }

// Write implements [http.ResponseWriter].
func (h *heldReply) Write(b []byte) (int, error) {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	h.body = append(h.body, b...)
	return len(b), nil
}

// Set sets the faults of the requests from now on.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Count is how many requests of a method there were.
func (p *Proxy) Count(method string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counter(method).Load()
}

func (p *Proxy) counter(method string) *atomic.Int64 {
	if p.counts[method] == nil {
		p.counts[method] = &atomic.Int64{}
	}
	return p.counts[method]
}

// Close stops the proxy.
func (p *Proxy) Close() { _ = p.server.Close() }
