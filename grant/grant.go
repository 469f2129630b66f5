// Package grant is permission to call a server on somebody's behalf: the gateway as an OAuth
// client. A [Desk] is an http.RoundTripper; a request whose context names a [Server] (see [With])
// gets that server's token, and a server that asks for one, or for more scopes than it has, is
// asked for permission and called again. Discovery, registration, PKCE and the exchange of codes
// are the Go SDK's; what is here is when to ask, whom, how often, and where tokens are kept.
//
// Path through the files: grant.go is a request's way, permit.go what is known of one server and
// what is done about a refusal, flow.go one asking of a user, callback.go where the browser comes
// back to, pass.go a token that is kept and renewed, reach.go how authorization servers are
// reached, config.go what an operator can say.
//
// Invariants: a token goes to the server it was given for, and nowhere else; a refresh token and a
// client's secret go to the token endpoint they came from or, where the operator named an issuer,
// to that issuer. One asking is under way for a server at a time, and none follows one that
// failed, or whose token was not taken, without a growing pause; scopes that were asked for and
// did not help are not asked for again. An address to open is only in the log. Tokens are kept
// sealed and are in no log and no error.
//
// A request that cannot go on because permission is missing fails with fault.Unavailable and a
// [Missing] inside. When the store fails, a token is used but not kept; one that cannot be read
// back is not asked for anew, because it may still be there.
package grant

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/state"
)

// pace is how long things may take.
type pace struct {
	patience   time.Duration // a request waits so long for a user: less than a greeting may take
	wait       time.Duration // an address can be opened so long after it was logged
	firstPause time.Duration // after an asking that failed; doubled with each
	longPause  time.Duration
}

// The address stays good for long: a new one costs the authorization server a registration, and
// whoever reads the log may be at lunch.
var usual = pace{patience: 4 * time.Second, wait: time.Hour, firstPause: 30 * time.Second, longPause: time.Hour}

// mostRounds bounds how often one request is sent again: with a token from the store, with a
// renewed one, with a new one, with more scopes.
const mostRounds = 4

// Desk is where permissions are asked for and kept.
type Desk struct {
	next  http.RoundTripper
	store *state.Store
	seal  *seal.Sealer
	pace  pace

	life context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	permits map[string]*permit
	visits  map[string]*visit // by state
	address string            // where browsers find Callback; "" until it is known
	own     io.Closer         // the listener for them, where nobody else has one
	closed  bool
}

// Deps is what a desk is made of.
type Deps struct {
	Next   http.RoundTripper // sends requests to servers
	Store  *state.Store      // keeps tokens
	Secret []byte            // the root of the key that seals them
}

// New makes a desk.
func New(d Deps) (*Desk, error) {
	sealer, err := seal.New(d.Secret, "oauth")
	if err != nil {
		return nil, err
	}
	desk := &Desk{next: d.Next, store: d.Store, seal: sealer, pace: usual, permits: map[string]*permit{}, visits: map[string]*visit{}}
	desk.life, desk.stop = context.WithCancel(context.Background())
	return desk, nil
}

// Close ends what is under way and waits for it. A token that is on its way is still fetched and
// kept: the one before it may be good no more.
func (d *Desk) Close() {
	d.mu.Lock()
	d.closed = true
	own := d.own
	d.own = nil
	d.mu.Unlock()
	d.stop()
	if own != nil {
		own.Close()
	}
	d.work.Wait()
}

type serverKey struct{}

// With names the server that a request goes to.
func With(ctx context.Context, s *Server) context.Context {
	return context.WithValue(ctx, serverKey{}, s)
}

func (d *Desk) permit(s *Server) *permit {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.permits[s.key]
	if p == nil {
		p = newPermit(d, s)
		d.permits[s.key] = p
	}
	return p
}

// RoundTrip sends a request with the server's token, and sends it again when permission could be
// had that it lacked.
func (d *Desk) RoundTrip(req *http.Request) (*http.Response, error) {
	s, ok := req.Context().Value(serverKey{}).(*Server)
	if !ok {
		return d.next.RoundTrip(req)
	}
	p := d.permit(s)
	body, err := bodies(req)
	if err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		held, err := p.current(req.Context())
		if err != nil {
			return nil, err
		}
		resp, err := d.send(req, body, held)
		if err != nil {
			return nil, err
		}
		want := demandOf(resp)
		if round == mostRounds || !p.canHelp(held, resp.StatusCode, want) {
			return resp, nil
		}
		discard(resp)
		if err := p.improve(req.Context(), held, want); err != nil {
			return nil, err
		}
	}
}

// send makes a request of its own each time: a RoundTripper may not change the one it was given.
func (d *Desk) send(req *http.Request, body func() (io.ReadCloser, error), held *pass) (*http.Response, error) {
	out := req.Clone(req.Context())
	var err error
	if out.Body, err = body(); err != nil {
		return nil, fmt.Errorf("reading the request again: %w", err)
	}
	if held != nil {
		out.Header.Set("Authorization", "Bearer "+held.Access)
	}
	return d.next.RoundTrip(out)
}

// bodies gives a request's body as often as it is needed. The request's own is closed.
func bodies(req *http.Request) (func() (io.ReadCloser, error), error) {
	if req.Body == nil || req.Body == http.NoBody {
		return func() (io.ReadCloser, error) { return req.Body, nil }, nil
	}
	defer req.Body.Close()
	if req.GetBody != nil {
		return req.GetBody, nil
	}
	whole, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }, nil
}

// discard reads what little is left of a refusal, so that its connection can be used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	resp.Body.Close()
}

// Missing is inside the failure of a call that lacked a permission.
type Missing struct {
	// Until is closed when it makes sense to try again; nil where nobody knows.
	Until <-chan struct{}

	// Why is the cause, for the log.
	Why error
}

func (m *Missing) Error() string { return fmt.Sprintf("no permission: %v", m.Why) }

// missing is what a client gets to hear. The address to open is for the operator alone.
func missing(server, public string, m *Missing) error {
	return fault.Wrap(fault.Unavailable, fmt.Sprintf("server %q %s", server, public), m)
}
