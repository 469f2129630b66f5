package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout is how long a gateway may take until it accepts connections. Its servers start later.
const startTimeout = time.Minute

// Program is how the gateway of an endpoint is started.
type Program struct {
	Endpoint Endpoint
	Path     string   // of ctxgate
	Args     []string // that make it a gateway in the background
	Env      []string
	Version  string // of this program
}

// report is the line by which a gateway in the background tells whoever started it how that went.
type report struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// ReportReady tells whoever started this gateway that it accepts connections.
func ReportReady(w io.WriteCloser) { _ = errors.Join(writeLine(w, report{Ready: true}), w.Close()) }

// ReportError tells whoever started this gateway why it ends.
func ReportError(w io.WriteCloser, text string) {
	_ = errors.Join(writeLine(w, report{Error: text}), w.Close())
}

// StartError says why a gateway did not start, in its own words.
type StartError struct{ Text string }

func (e *StartError) Error() string { return e.Text }

// Connect connects to the gateway, and starts it where none runs. A gateway in the background that is an older release
// than this program is replaced first.
func (p Program) Connect(ctx context.Context, h Hello) (*Conn, Gateway, error) {
	h.Version, h.PID = p.Version, os.Getpid()
	var err error
	for range 5 {
		var c *Conn
		var g Gateway
		c, g, err = Dial(ctx, p.Endpoint, h)
		switch {
		case errors.Is(err, ErrNotRunning):
			if err = p.startIfNone(ctx, h.Client); err != nil {
				return nil, Gateway{}, err
			}
			continue // it may have ended meanwhile
		case err != nil:
			return nil, g, err
		case g.Background && IsNewer(p.Version, g.Version):
			_ = c.Close()
			if err := p.Replace(ctx, h.Client, func(g Gateway) bool { return IsNewer(p.Version, g.Version) }); err != nil {
				slog.Warn("the running gateway is an older release and could not be replaced; it is used as it is: 'ctxgate stop' ends it", "version", g.Version, "error", err)
				return Dial(ctx, p.Endpoint, h)
			}
			continue
		}
		return c, g, nil
	}
	return nil, Gateway{}, fmt.Errorf("the gateway ends as soon as it is started; see %s: %w", p.Endpoint.Log, err)
}

// ConnectMCP connects a client. The connection carries its messages, one a line.
func (p Program) ConnectMCP(ctx context.Context, client, token string) (*Conn, Gateway, error) {
	return p.Connect(ctx, Hello{Purpose: purposeMCP, Client: client, Token: token})
}

// Ensure returns what the running gateway says of itself, and starts one where none runs.
func (p Program) Ensure(ctx context.Context, client string) (Gateway, error) {
	c, g, err := p.Connect(ctx, Hello{Purpose: purposeHTTP, Client: client})
	if err == nil {
		_ = c.Close()
	}
	return g, err
}

// Running returns what the running gateway says of itself, and ErrNotRunning where none runs.
func Running(ctx context.Context, e Endpoint, version string) (Gateway, error) {
	c, g, err := Dial(ctx, e, Hello{Purpose: purposeHTTP, Version: version, PID: os.Getpid()})
	if err == nil {
		_ = c.Close()
	}
	return g, err
}

// HTTPClient returns a client of the operator's API on the socket. The host of its URLs does not matter.
func HTTPClient(e Endpoint, version string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, _, err := Dial(ctx, e, Hello{Purpose: purposeHTTP, Version: version, PID: os.Getpid()})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

// startIfNone starts a gateway unless another process has meanwhile.
func (p Program) startIfNone(ctx context.Context, client string) error {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	unlock, err := p.Endpoint.Lock(limited)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := Running(limited, p.Endpoint, p.Version); !errors.Is(err, ErrNotRunning) {
		return nil //nolint:nilerr // the caller connects, and sees why that fails
	}
	return p.spawn(limited, client)
}

// Replace starts a gateway that takes over from the running one, if that still is as it should be.
func (p Program) Replace(ctx context.Context, client string, still func(Gateway) bool) error {
	limited, cancel := context.WithTimeout(ctx, warmupLimit)
	defer cancel()
	unlock, err := p.Endpoint.Lock(limited)
	if err != nil {
		return err
	}
	defer unlock()
	g, err := Running(limited, p.Endpoint, p.Version)
	if err != nil || !still(g) {
		return err
	}
	return p.spawn(limited, client, "--take-over")
}

// spawn starts a gateway in the background and waits until it accepts connections; the lock is held.
func (p Program) spawn(ctx context.Context, client string, more ...string) error {
	if err := os.MkdirAll(filepath.Dir(p.Endpoint.Log), 0o700); err != nil {
		return fmt.Errorf("making the directory of the log: %w", err)
	}
	log, err := os.OpenFile(p.Endpoint.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of the gateway: %w", err)
	}
	defer log.Close()
	before, _ := log.Seek(0, io.SeekEnd)
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	defer out.Close()
	args := append(append(p.Args[:len(p.Args):len(p.Args)], "--started-by", client), more...)
	cmd := exec.Command(p.Path, args...) //nolint:gosec,noctx // this program itself, which outlives every context here
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.Env, in, log, detached()
	if p.Endpoint.Config != "" {
		cmd.Dir = filepath.Dir(p.Endpoint.Config) // whoever starts it
	}
	err = cmd.Start()
	_ = in.Close()
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	go func() { _ = cmd.Wait() }() // so that it leaves no zombie while this process lives
	stop := context.AfterFunc(ctx, func() { _ = out.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(out, 1<<20)).ReadBytes('\n')
	var r report
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		_ = cmd.Process.Kill()
		return fmt.Errorf("the gateway did not start in time; see %s", p.Endpoint.Log)
	case err != nil:
		return &StartError{fmt.Sprintf("the gateway ended while it started; its log, %s, says:\n%s", p.Endpoint.Log, tailOf(p.Endpoint.Log, before))}
	case r.Error != "":
		return &StartError{r.Error}
	}
	return nil
}

// tailOf is what was written to a file after an offset, as far as it fits into an error.
func tailOf(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(f, 64<<10))
	return strings.TrimSpace(string(text[max(0, len(text)-2<<10):]))
}

// AwaitExit waits until a process has ended.
func AwaitExit(ctx context.Context, pid int) error {
	for isAlive(pid) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
