package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// installSetting is the setting that limits a start which may have to fetch the server.
const installSetting = "install_timeout"

const (
	quietStart      = 2 * time.Second  // a start that takes longer is reported
	progressEvery   = 5 * time.Second  // and then this often, in the log
	maxInstallWait  = 45 * time.Second // how long a call waits for an install; many clients give up after 60 s
	maxFailedStarts = 3                // crashes after which AwaitStart gives up
)

// StartProgress is a start that is under way.
type StartProgress struct {
	Server    string
	Launcher  string // that may be fetching the server; "" for a program that is there
	IsRemote  bool
	IsWaiting bool // for the installs of other servers
	Elapsed   time.Duration
}

// String is the progress as people read it: "memory: npx is installing, 14 s".
func (p StartProgress) String() string {
	doing := "starting"
	switch {
	case p.IsWaiting:
		doing = "waiting for the installs of other servers"
	case p.Launcher != "":
		doing = p.Launcher + " is installing"
	case p.IsRemote:
		doing = "connecting"
	}
	return fmt.Sprintf("%s: %s, %d s", p.Server, doing, int(p.Elapsed.Seconds()))
}

// starting is the start of a connection that is under way.
type starting struct {
	began   time.Time
	waiting bool // for the installs of other servers
}

// startLimit is how long a start may take, and the setting that says so. A launcher gets install_timeout until the
// server has been up once: what it fetches is there then.
func (s *Server) startLimit() (limit time.Duration, setting string) {
	if s.isInstalling() && s.entry.InstallTimeout > s.entry.StartupTimeout {
		return s.entry.InstallTimeout.D(), installSetting
	}
	return s.entry.StartupTimeout.D(), "startup_timeout"
}

// isInstalling reports whether a start of the server may have to fetch it first.
func (s *Server) isInstalling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launcher != nil && !s.wasUp && s.entry.InstallTimeout > 0
}

// callWait is how long a call waits for the server to come up.
func (s *Server) callWait() time.Duration {
	limit, setting := s.startLimit()
	if setting == installSetting {
		return min(limit, s.installWait)
	}
	return limit
}

// startTimeoutError says that a start took longer than a setting allows.
type startTimeoutError struct {
	setting string
	limit   time.Duration
}

func (e *startTimeoutError) Error() string {
	return fmt.Sprintf("no answer within %s = %s", e.setting, unit.Duration(e.limit))
}

// StartProgress returns the start of the shared connection that is under way; false if there is none.
func (s *Server) StartProgress() (StartProgress, bool) {
	m := s.SharedConn()
	if m == nil {
		return StartProgress{}, false
	}
	return m.startProgress()
}

// AwaitStart waits until the server is up or its start has failed, however long an install takes. A child that crashed
// is started a few times: it may have failed at the first handshake. One that used up its time is not.
func (m *ManagedConn) AwaitStart(ctx context.Context) (*Conn, error) {
	began := time.Now()
	for {
		m.mu.Lock()
		conn, changed, failures, cause := m.conn, m.changed, m.failureCount, m.lastFailure
		m.mu.Unlock()
		_, isOver := errors.AsType[*startTimeoutError](cause)
		isOver = isOver || failures >= maxFailedStarts || time.Since(began) >= m.server.entry.StartupTimeout.D()
		switch {
		case conn != nil:
			return conn, nil
		case failures > 0 && isOver:
			return nil, unavailable(cause)
		}
		m.requestConn()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, wire.CallError(ctx, ctx.Err())
		case <-m.stopped:
			return nil, fault.New(fault.Unavailable, "the server is being stopped")
		}
	}
}

func (m *ManagedConn) startProgress() (StartProgress, bool) {
	m.mu.Lock()
	now := m.starting
	m.mu.Unlock()
	if now == nil {
		return StartProgress{}, false
	}
	p := StartProgress{Server: m.ServerID(), IsRemote: m.server.isRemote(), IsWaiting: now.waiting, Elapsed: time.Since(now.began)}
	if m.server.isInstalling() {
		p.Launcher = m.server.launcher.name
	}
	return p, true
}

func (m *ManagedConn) setStarting(now *starting) {
	m.mu.Lock()
	m.starting = now
	m.mu.Unlock()
}

// reportStart logs a start that takes long, until the returned function is called.
func (m *ManagedConn) reportStart() (stop func()) {
	m.setStarting(&starting{began: time.Now()})
	done := make(chan struct{})
	go func() {
		timer := time.NewTimer(quietStart)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			if p, ok := m.startProgress(); ok {
				slog.Info(p.String(), "server", p.Server)
			}
			timer.Reset(progressEvery)
		}
	}()
	return func() {
		m.setStarting(nil)
		close(done)
	}
}
