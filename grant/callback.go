package grant

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// CallbackPath is where browsers come back to.
const CallbackPath = "/oauth/callback"

const (
	outcomeTime = 10 * time.Second // the longest a browser waits to be told how it went
	mostCode    = 8 << 10          // the longest part of an answer that is taken
)

// visit is a browser that is expected.
type visit struct {
	server string
	state  string
	came   chan arrival // holds one: an address is good once

	once  sync.Once
	ended chan struct{}
	err   error
}

// arrival is what a browser brought.
type arrival struct {
	auth.AuthorizationResult
	refusal string // the authorization server's error
}

// done says how it went; the first time counts.
func (v *visit) done(err error) {
	v.once.Do(func() {
		v.err = err
		close(v.ended)
	})
}

// expect makes the state of an address known. It was made by the SDK and cannot be guessed.
func (d *Desk) expect(server, state string) *visit {
	v := &visit{server: server, state: state, came: make(chan arrival, 1), ended: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visits[state] = v
	return v
}

func (d *Desk) forget(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.visits, v.state)
}

// claim is the visit of a state, once.
func (d *Desk) claim(state string) *visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.visits[state]
	delete(d.visits, state)
	return v
}

// Callback takes in the browsers that come back. It needs no credentials: the state in the address
// is one, and says nothing else of itself.
func (d *Desk) Callback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for _, values := range query {
		if len(values) > 1 || len(values[0]) > mostCode { // OAuth: parameters come once
			page(w, http.StatusBadRequest, "This is not an answer of an authorization server.")
			return
		}
	}
	v := d.claim(query.Get("state"))
	if v == nil {
		page(w, http.StatusBadRequest, "Nobody waits for this answer: it came too late, or twice. The gateway's log has the address to open now.")
		return
	}
	came := arrival{refusal: query.Get("error")}
	came.Code, came.State, came.Iss = query.Get("code"), query.Get("state"), query.Get("iss")
	if came.Code == "" && came.refusal == "" {
		came.refusal = "nothing"
	}
	v.came <- came
	select {
	case <-v.ended:
	case <-time.After(outcomeTime):
	case <-r.Context().Done():
	case <-d.life.Done():
	}
	outcome(w, v)
}

func outcome(w http.ResponseWriter, v *visit) {
	select {
	case <-v.ended:
	default:
		page(w, http.StatusOK, "The gateway is not done yet; its log will say how it went. You can close this window.")
		return
	}
	if v.err != nil {
		page(w, http.StatusForbidden, fmt.Sprintf("ctxgate may not use server %q: its log says why. You can close this window.", v.server))
		return
	}
	page(w, http.StatusOK, fmt.Sprintf("ctxgate may use server %q now. You can close this window.", v.server))
}

// page is plain text: nothing in it can be made to run.
func page(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address has the code in it
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// Serve says where browsers find Callback: the listener's address, unless the operator has named
// a URL. It is called before the first server is.
func (d *Desk) Serve(listen net.Addr, publicURL string) {
	at := strings.TrimRight(publicURL, "/")
	if at == "" {
		at = "http://" + reachable(listen.String())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address = at + CallbackPath
}

// reachable is a listener's address as a browser on the same machine can use it.
func reachable(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsUnspecified() {
		return address
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String()
}

// redirect is where browsers are to come back to. A gateway that has no listener opens one for
// them on this machine, as RFC 8252 has it (7.3).
func (d *Desk) redirect() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return "", errStopping
	case d.address != "":
		return d.address, nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("opening a listener for the browser: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+CallbackPath, d.Callback)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: outcomeTime, IdleTimeout: outcomeTime, MaxHeaderBytes: 4 * mostCode}
	d.own, d.address = server, "http://"+l.Addr().String()+CallbackPath
	d.work.Go(func() { _ = server.Serve(l) }) // it ends with Close
	return d.address, nil
}
