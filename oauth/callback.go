package oauth

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// CallbackPath is the path of the redirect URI.
const CallbackPath = "/oauth/callback"

const (
	maxOutcomeWait = 10 * time.Second // how long a browser waits for the outcome
	maxParamLength = 8 << 10          // the longest accepted query parameter
)

// authRequest is an authorization request whose browser is expected back.
type authRequest struct {
	server  *Server
	state   string
	address *url.URL            // of the authorization server
	result  chan callbackResult // holds one: an address works once

	// Of a request that a caller begins: the id of its page, and the cookie of the browser that has begun it, which alone can
	// come back; "" before. The Transport's lock guards the cookie.
	startID string
	cookie  string

	once  sync.Once
	ended chan struct{}
	err   error
}

// callbackResult is what the browser brought.
type callbackResult struct {
	auth.AuthorizationResult
	refusal string // the authorization server's error
}

// recordOutcome records the outcome; the first call counts.
func (r *authRequest) recordOutcome(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.ended)
	})
}

// expectCallback registers the state of an address. The SDK made it; it cannot be guessed.
func (t *Transport) expectCallback(server *Server, state string, address *url.URL) *authRequest {
	r := &authRequest{server: server, state: state, address: address, result: make(chan callbackResult, 1), ended: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.authRequests[state] = r
	if server.principal.isCaller() {
		r.startID = rand.Text()
		t.startPages[r.startID] = r
	}
	return r
}

func (t *Transport) forgetAuthRequest(r *authRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.authRequests, r.state)
	delete(t.startPages, r.startID)
}

// claimAuthRequest finds and removes the request of a state: it can be claimed once and, if a caller began it, only by the
// browser in which that was. Any other browser changes nothing.
func (t *Transport) claimAuthRequest(state string, browser *http.Request) *authRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.authRequests[state]
	if r == nil || r.startID != "" && !r.hasBegunIn(browser) {
		return nil
	}
	delete(t.authRequests, state)
	return r
}

// HandleCallback serves the redirect URI. It needs no credentials: the state is one and, where a caller authorizes, the
// cookie of the page that began it is another. The page repeats
// nothing of the request.
func (t *Transport) HandleCallback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for _, values := range query {
		if len(values) > 1 || len(values[0]) > maxParamLength { // OAuth: a parameter appears once
			writePage(w, http.StatusBadRequest, "This is not the answer of an authorization server.")
			return
		}
	}
	request := t.claimAuthRequest(query.Get("state"), r)
	if request == nil {
		writePage(w, http.StatusBadRequest, "No authorization waits for this answer: it came too late, or twice, or from another browser than the one that began it. "+
			"The next call that needs it, or the gateway's log, has the address to open now.")
		return
	}
	result := callbackResult{refusal: query.Get("error")}
	result.Code, result.State, result.Iss = query.Get("code"), query.Get("state"), query.Get("iss")
	if result.Code == "" && result.refusal == "" {
		result.refusal = "nothing"
	}
	request.result <- result

	// Wait for the outcome, so that the page can show it.
	select {
	case <-request.ended:
	case <-time.After(maxOutcomeWait):
	case <-r.Context().Done():
	case <-t.life.Done():
	}
	select {
	case <-request.ended:
	default:
		writePage(w, http.StatusOK, "The authorization is still running; the gateway's log will show its outcome. You can close this window.")
		return
	}
	if request.err != nil {
		writePage(w, http.StatusForbidden, fmt.Sprintf("ctxgate may not use %s: its log says why. You can close this window.", request.server.nameForPeople()))
		return
	}
	writePage(w, http.StatusOK, fmt.Sprintf("ctxgate may use %s now. You can close this window.", request.server.nameForPeople()))
}

// writePage answers in plain text, so that nothing in it can run as script.
func writePage(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address contains the code
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// SetRedirectURL sets the base of the redirect URI: publicURL or, if that is empty, the address of the
// listener that serves HandleCallback. Call it before the first request.
func (t *Transport) SetRedirectURL(listen net.Addr, publicURL string) {
	base := strings.TrimRight(publicURL, "/")
	if base == "" {
		address := listen.String()
		// A browser cannot open an unspecified address such as 0.0.0.0.
		if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
			address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String()
		}
		base = "http://" + address
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.redirectURL = base + CallbackPath
}

// ensureRedirectURL returns the redirect URI. A gateway that has no listener opens one on loopback, as
// RFC 8252, 7.3 describes.
func (t *Transport) ensureRedirectURL() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return "", errStopping
	case t.redirectURL != "":
		return t.redirectURL, nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("opening a listener for the browser: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+CallbackPath, t.HandleCallback)
	mux.HandleFunc(StartPath, t.HandleStart)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: maxOutcomeWait, IdleTimeout: maxOutcomeWait, MaxHeaderBytes: 4 * maxParamLength}
	t.ownListener, t.redirectURL = server, "http://"+l.Addr().String()+CallbackPath
	t.work.Go(func() { _ = server.Serve(l) }) // ends with Close
	return t.redirectURL, nil
}
