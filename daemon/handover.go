package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// warmupLimit is how long a gateway that takes over may take from the listeners to its first request.
const warmupLimit = 2 * time.Minute

// readyLine ends a hand-over: the new gateway serves.
type readyLine struct {
	Ready bool `json:"ready"`
}

// Handover is the gateway that is being replaced, which serves until Finish.
type Handover struct {
	conn      *Conn
	Old       Gateway
	Listeners map[string]net.Listener // by name, shared with the old gateway; empty where the system cannot pass them
}

// BeginHandover asks the gateway of an endpoint for its listeners. The caller holds the lock.
func BeginHandover(ctx context.Context, e Endpoint, version string) (*Handover, error) {
	c, old, err := Dial(ctx, e, Hello{Purpose: purposeReplace, Version: version, PID: os.Getpid()})
	if err != nil {
		return nil, err
	}
	h := &Handover{conn: c, Old: old}
	if _, err = c.Write([]byte("{}\n")); err == nil { // the old gateway sends nothing that could be buffered before this
		_ = c.SetDeadline(time.Now().Add(helloTimeout))
		h.Listeners, err = receiveListeners(c.UnixConn)
		_ = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("taking over from the gateway with pid %d: %w", old.PID, err)
	}
	return h, nil
}

// Finish tells the old gateway that the new one serves; it then finishes its calls and ends.
func (h *Handover) Finish() error {
	return errors.Join(writeLine(h.conn, readyLine{true}), h.conn.Close())
}

// Abort leaves everything to the old gateway.
func (h *Handover) Abort() {
	_ = h.conn.Close()
	for _, l := range h.Listeners {
		_ = l.Close()
	}
}

// serveReplace passes the listeners to another gateway, and ends this one when the other serves.
func (s *Server) serveReplace(c *Conn) {
	var ask struct{}
	var ready readyLine
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	err := readLine(c.buffered, &ask)
	if err == nil {
		err = sendListeners(c.UnixConn, s.opts.Listeners())
	}
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(warmupLimit))
		err = readLine(c.buffered, &ready)
	}
	if err != nil || !ready.Ready {
		slog.Warn("another gateway wanted to take over and did not start; this one goes on", "error", err)
		return
	}
	s.opts.End(ErrReplaced)
}
