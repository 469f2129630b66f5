package daemon

import (
	"errors"
	"net"
)

// errNoHandover says what a user does instead. A running program cannot be overwritten here, so an upgrade ends the
// gateway first anyway.
var errNoHandover = errors.New("on Windows a running gateway is not replaced: run 'ctxgate stop', and the next client starts the new one")

func sendListeners(*net.UnixConn, map[string]net.Listener) error { return errNoHandover }

func receiveListeners(*net.UnixConn) (map[string]net.Listener, error) { return nil, errNoHandover }
