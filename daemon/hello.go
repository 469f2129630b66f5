package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"
)

const (
	protocolVersion = 1
	maxHello        = 64 << 10 // bytes of a hello line

	// helloTimeout is how long either side may take for its hello.
	helloTimeout = 20 * time.Second
)

// What a connection is for. It is in the first line of whoever connects.
const (
	purposeMCP     = "mcp"     // JSON-RPC messages follow, one a line
	purposeHTTP    = "http"    // HTTP/1.1 follows: the operator's API
	purposeReplace = "replace" // another gateway takes this one's listeners over
)

// Hello is the first line of whoever connects.
type Hello struct {
	Protocol int    `json:"ctxgate"`
	Purpose  string `json:"purpose"`
	Client   string `json:"client,omitempty"`  // as the client's entry names it
	Token    string `json:"token,omitempty"`   // of the client
	Version  string `json:"version,omitempty"` // of the program that connects
	PID      int    `json:"pid,omitempty"`
}

// Gateway is the first line of the gateway: what it is.
type Gateway struct {
	Protocol   int       `json:"ctxgate"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Config     string    `json:"config"`
	Profile    string    `json:"profile"`
	Listen     string    `json:"listen,omitempty"` // the addresses that are open; the config's may have been in use
	Admin      string    `json:"admin,omitempty"`
	Pruner     string    `json:"pruner,omitempty"`
	Log        string    `json:"log,omitempty"` // "" where the log goes to stderr
	Started    time.Time `json:"started"`
	StartedBy  string    `json:"started_by,omitempty"` // the client whose variables the gateway has
	Background bool      `json:"background"`           // it was started by a client, ends by itself, and may be replaced
	MaxMessage int64     `json:"max_message"`          // bytes of a client's message
	Error      string    `json:"error,omitempty"`      // why the connection is refused
}

// RefusedError says why a gateway refused a connection.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return e.Text }

// Conn is a connection after both hellos.
type Conn struct {
	*net.UnixConn
	buffered *bufio.Reader
}

// Read reads what follows the hello.
func (c *Conn) Read(p []byte) (int, error) { return c.buffered.Read(p) }

// Dial connects to the gateway of an endpoint. Where none runs, the error is ErrNotRunning; where the gateway refuses,
// a RefusedError.
func Dial(ctx context.Context, e Endpoint, h Hello) (*Conn, Gateway, error) {
	for until := time.Now().Add(helloTimeout); ; {
		c, g, err := dialOnce(ctx, e, h)
		if !errors.Is(err, errEnded) || time.Now().After(until) {
			return c, g, err
		}
		select { // it is stopping, and will be gone, or another one has taken its place
		case <-ctx.Done():
			return nil, Gateway{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// errEnded says that the gateway closed a connection without a word.
var errEnded = errors.New("the gateway closed the connection")

func dialOnce(ctx context.Context, e Endpoint, h Hello) (*Conn, Gateway, error) {
	raw, err := (&net.Dialer{Timeout: helloTimeout}).DialContext(ctx, "unix", e.Socket())
	if errors.Is(err, fs.ErrNotExist) || isRefused(err) {
		return nil, Gateway{}, ErrNotRunning
	}
	if err != nil {
		return nil, Gateway{}, fmt.Errorf("connecting to the gateway: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	c := &Conn{raw.(*net.UnixConn), bufio.NewReaderSize(raw, 64<<10)} //nolint:forcetypeassert // what dialing "unix" returns
	h.Protocol = protocolVersion
	var g Gateway
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	err = writeLine(c, h)
	if err == nil {
		err = readLine(c.buffered, &g)
	}
	_ = c.SetDeadline(time.Time{})
	switch {
	case err != nil:
		_ = c.Close()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, Gateway{}, fmt.Errorf("the gateway at %s does not answer: %w", e.Socket(), err)
		}
		return nil, Gateway{}, errors.Join(errEnded, err)
	case g.Error != "":
		_ = c.Close()
		return nil, g, &RefusedError{g.Error}
	}
	return c, g, nil
}

func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

var errLongHello = errors.New("the first line is too long")

// readLine reads one line of JSON, and nothing beyond it.
func readLine(r *bufio.Reader, v any) error {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) >= maxHello {
			return errLongHello
		}
		if err == nil {
			return json.Unmarshal(line, v)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
