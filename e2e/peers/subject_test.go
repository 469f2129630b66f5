package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// subjectsVariable names the callers that the adapter runs the client for, one after the other, each with its own authorization;
// empty for one authorization by the operator.
const subjectsVariable = "CTXGATE_PEERS_SUBJECTS"

func subjects() []string { return strings.Fields(os.Getenv(subjectsVariable)) }

func subjectToken(subject string) string {
	return "token-of-" + subject + "-0123456789abcdef0123456789"
}

// tokens is the configuration of the callers.
func tokens(subjects []string) []token {
	var out []token
	for _, s := range subjects {
		sum := sha256.Sum256([]byte(subjectToken(s)))
		out = append(out, token{Name: s, SHA256: hex.EncodeToString(sum[:]), Tenant: "acme"})
	}
	return out
}

// runClients runs the client for each caller, in front of one gateway.
func runClients(ctx context.Context, gatewayURL string) error {
	for _, subject := range subjects() {
		caller := newCallerProxy(gatewayURL, subjectToken(subject))
		err := runClient(ctx, caller.URL+"/mcp")
		caller.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func runClient(ctx context.Context, endpoint string) error {
	proxy, err := revision(os.Getenv(revisionVariable)).filterProxy(endpoint)
	if err != nil {
		return err
	}
	defer proxy.Close()
	client := exec.CommandContext(ctx, os.Getenv(clientVariable), proxy.URL)
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	return client.Run()
}

var startPattern = regexp.MustCompile(`http://[^\s"\\]+/oauth/start\?flow=\w+`)

// callerProxy is what stands between the suite's client and the gateway for one caller: it sends the caller's token, and does what a
// user does who is told an address: opens it in a browser, and calls again.
type callerProxy struct {
	*httptest.Server
	gateway, token string
	forward        *httputil.ReverseProxy
	client         *http.Client
}

func newCallerProxy(gatewayURL, token string) *callerProxy {
	target, _ := url.Parse(gatewayURL)
	p := &callerProxy{gateway: gatewayURL, token: token, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	p.forward = &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, target.Host
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}}
	p.Server = httptest.NewServer(p)
	return p
}

func (p *callerProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	isList, isCall := bytes.Contains(body, []byte(`"tools/list"`)), bytes.Contains(body, []byte(`"tools/call"`))
	for range 20 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !isList && !isCall {
			break
		}
		reply := httptest.NewRecorder()
		p.forward.ServeHTTP(reply, r)
		text := reply.Body.String()
		switch address := startPattern.FindString(text); {
		case isCall && address != "":
			p.open(r.Context(), address)
			continue
		case isList && strings.Contains(text, `ctxgate/authorize`):
			p.open(r.Context(), p.askAddress(r.Context()))
			continue
		}
		for name, values := range reply.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(reply.Code)
		_, _ = io.WriteString(w, text)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// askAddress asks the gateway for the address, as the tool authorize does.
func (p *callerProxy) askAddress(ctx context.Context) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.gateway+"/api/mcp-gateway/up/rpc", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if err != nil {
		return ""
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := p.client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return startPattern.FindString(string(text))
}

// open opens an address in a browser of its own and presses the button. The suite's authorization server consents at once.
func (p *callerProxy) open(ctx context.Context, address string) {
	if address == "" { // it is authorized, and its lists are about to be read
		time.Sleep(100 * time.Millisecond)
		return
	}
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequestWithContext(ctx, method, address, nil)
		if err != nil {
			return
		}
		if resp, err := browser.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
}

// S21 per subject: with credentials = "caller", two callers of one gateway each pass every scenario with an authorization of
// their own.
func TestClientConformanceAuthPerCaller(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			f := runSuite(t, "client", e, append(adapterEnv(t, e, "auth"), subjectsVariable+"=ann bob"), "--command", self(t))
			f.keepScenarios(func(s string) bool { return scenarioKind(s) == "auth" })
			f.requireKnownOnly(t, nil)
		})
	}
}
