package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	maxConns    = 256 // connections that the socket serves at once
	maxRefusals = 32  // connections beyond those that are told why they are refused
)

// ReplaceGrace is how long calls in flight may take when a gateway is replaced. Nobody waits for its end, so a call may
// take as long as its own timeout allows.
const ReplaceGrace = time.Hour

// NoteDrain is the method of the notification by which a gateway tells a bridge to leave. Its params say whether another
// gateway has taken over.
const NoteDrain = "notifications/ctxgate/drain"

// Server serves a gateway's socket.
type Server struct {
	opts ServerOptions
	http *http.Server
	web  *connQueue

	ctx context.Context //nolint:containedctx // of all connections
	end context.CancelCauseFunc
	wg  sync.WaitGroup

	mu       sync.Mutex
	listener *net.UnixListener
	socket   os.FileInfo // of the listener, to notice that another gateway has taken the path
	closed   bool
	count    int
	clients  map[*Conn]Client
}

// Client is one connected bridge.
type Client struct {
	ID    string    `json:"id"` // as its entry names it; "" where it names none
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// ServerOptions is what a Server needs of its gateway.
type ServerOptions struct {
	Endpoint Endpoint
	Info     func() Gateway // what the gateway says of itself

	// CheckToken rejects the token of a client's hello; it is not called for an empty one.
	CheckToken func(token string) error

	// ServeMCP serves a client until it leaves or ctx ends; drain is for hub.StdioOptions.
	ServeMCP func(ctx context.Context, c *Conn, h Hello, drain func() ([]byte, time.Duration)) error

	HTTP http.Handler // the operator's API; whoever reaches the socket is the operator

	// Listeners are the listeners to pass to a gateway that replaces this one, by name.
	Listeners func() map[string]net.Listener

	// End ends the gateway.
	End func(cause error)

	DrainGrace func() time.Duration // for calls in flight when the gateway stops
}

// NewServer opens the socket of an endpoint. A socket that is there is replaced: the caller holds the lock and knows that
// no other gateway serves it, or that this one takes over.
func NewServer(opts ServerOptions) (*Server, error) {
	s := &Server{opts: opts, clients: map[*Conn]Client{}}
	if err := s.bind(); err != nil {
		return nil, err
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.web = newConnQueue(s.listener.Addr())
	s.http = &http.Server{Handler: opts.HTTP, ReadHeaderTimeout: helloTimeout, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)}
	go func() { _ = s.http.Serve(s.web) }()
	return s, nil
}

// bind opens the socket under another name and renames it, so that the path always leads to a socket that is served.
func (s *Server) bind() error {
	path := s.opts.Endpoint.Socket()
	fresh := fmt.Sprintf("%s.%d", path[:len(path)-len(".sock")], os.Getpid()%10000)
	if runtime.GOOS == "windows" { // where a socket cannot be renamed
		fresh = path
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("opening the socket: %w", err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return fmt.Errorf("opening the socket: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, 0o600)
	if err == nil && fresh != path {
		err = os.Rename(fresh, path)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening the socket: %w", err), ln.Close(), os.Remove(fresh))
	}
	s.mu.Lock()
	s.listener, s.socket = ln, info
	s.mu.Unlock()
	return nil
}

// Serve accepts connections until Close.
func (s *Server) Serve() error {
	for {
		s.mu.Lock()
		ln := s.listener
		s.mu.Unlock()
		raw, err := ln.AcceptUnix()
		s.mu.Lock()
		closed, isNew := s.closed, ln != s.listener
		isFull := err == nil && s.count >= maxConns
		accepts := err == nil && !closed && s.count < maxConns+maxRefusals
		if accepts {
			s.count++
			s.wg.Add(1)
		}
		s.mu.Unlock()
		switch {
		case closed:
			if err == nil {
				_ = raw.Close()
			}
			return nil
		case isNew && err != nil: // the socket was opened again
		case err != nil:
			return fmt.Errorf("serving the socket: %w", err)
		case !accepts:
			_ = raw.Close()
		default:
			go s.serveConn(&Conn{raw, bufio.NewReaderSize(raw, 64<<10)}, isFull)
		}
	}
}

func (s *Server) serveConn(c *Conn, isFull bool) {
	defer func() {
		s.mu.Lock()
		s.count--
		delete(s.clients, c)
		s.mu.Unlock()
		s.wg.Done()
	}()
	var h Hello
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	if err := readLine(c.buffered, &h); err != nil {
		_ = c.Close()
		return
	}
	answer := s.opts.Info()
	answer.Protocol = protocolVersion
	switch {
	case isFull:
		answer.Error = fmt.Sprintf("the gateway has %d connections already", maxConns)
	case h.Protocol != protocolVersion:
		answer.Error = fmt.Sprintf("the gateway (ctxgate %s, pid %d) and this program (ctxgate %s) speak different protocols: run 'ctxgate stop'", answer.Version, answer.PID, h.Version)
	case h.Purpose != purposeMCP && h.Purpose != purposeHTTP && h.Purpose != purposeReplace:
		answer.Error = "the gateway does not know what this connection is for"
	case h.Token != "":
		if err := s.opts.CheckToken(h.Token); err != nil {
			answer.Error = err.Error()
		}
	}
	if h.Purpose == purposeMCP && answer.Error == "" {
		s.mu.Lock()
		s.clients[c] = Client{ID: h.Client, PID: h.PID, Since: time.Now()}
		s.mu.Unlock()
	}
	err := writeLine(c, answer)
	_ = c.SetDeadline(time.Time{})
	if err != nil || answer.Error != "" {
		_ = c.Close()
		return
	}
	switch h.Purpose {
	case purposeMCP:
		if err := s.opts.ServeMCP(s.ctx, c, h, s.drainNotice); err != nil {
			slog.Warn("the connection of a client ended", "client", h.Client, "pid", h.PID, "error", err)
		}
		_ = c.Close()
	case purposeHTTP:
		tracked := &trackedConn{Conn: c, closed: make(chan struct{})}
		s.web.put(tracked)
		select {
		case <-tracked.closed:
		case <-s.ctx.Done():
		}
	case purposeReplace:
		s.serveReplace(c)
		_ = c.Close()
	}
}

// drainNotice tells a bridge to leave, and how long it may take.
func (s *Server) drainNotice() ([]byte, time.Duration) {
	replaced := errors.Is(context.Cause(s.ctx), ErrReplaced)
	grace := s.opts.DrainGrace()
	if replaced {
		grace = ReplaceGrace
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"replaced":%t}}`, NoteDrain, replaced), grace
}

// Clients returns the connected bridges.
func (s *Server) Clients() []Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Client, 0, len(s.clients))
	for _, c := range s.clients {
		all = append(all, c)
	}
	return all
}

// CheckSocket looks whether the path still leads to this server. A socket that was removed is opened again; one of
// another gateway is not, and the result is false.
func (s *Server) CheckSocket() bool {
	s.mu.Lock()
	socket, closed := s.socket, s.closed
	old := s.listener
	s.mu.Unlock()
	if closed {
		return true
	}
	now, err := os.Lstat(s.opts.Endpoint.Socket())
	switch {
	case err == nil:
		return os.SameFile(socket, now)
	case errors.Is(err, fs.ErrNotExist):
		if err := makePrivateDir(s.opts.Endpoint.Dir); err != nil {
			slog.Warn("the gateway's socket was removed and cannot be opened again", "error", err)
		} else if err := s.bind(); err != nil {
			slog.Warn("the gateway's socket was removed and cannot be opened again", "error", err)
		} else {
			_ = old.Close()
		}
	}
	return true
}

// Close stops accepting connections, tells the clients to leave, and waits for them. cause is why the gateway ends.
func (s *Server) Close(cause error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	ln, socket := s.listener, s.socket
	s.mu.Unlock()
	if now, err := os.Lstat(s.opts.Endpoint.Socket()); err == nil && os.SameFile(socket, now) {
		_ = os.Remove(s.opts.Endpoint.Socket())
	}
	_ = ln.Close()
	s.end(cause)
	s.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.DrainGrace())
	defer cancel()
	_ = s.http.Shutdown(ctx)
	_ = s.http.Close()
}

// trackedConn says when it is closed.
type trackedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// connQueue is a net.Listener of connections that were accepted elsewhere.
type connQueue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue(addr net.Addr) *connQueue {
	return &connQueue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *connQueue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

// Accept returns the next connection.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr is the address of the socket.
func (q *connQueue) Addr() net.Addr { return q.addr }
