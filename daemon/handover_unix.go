//go:build unix

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
)

// maxPassed is how many listeners are passed at most.
const maxPassed = 8

// sendListeners sends the names of listeners, and their file descriptors beside them.
func sendListeners(c *net.UnixConn, listeners map[string]net.Listener) error {
	var names []string
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}()
	for name, l := range listeners {
		tcp, ok := l.(*net.TCPListener)
		if !ok || len(fds) == maxPassed {
			continue
		}
		fd, err := duplicate(tcp)
		if err != nil {
			return fmt.Errorf("passing the listener %s on: %w", name, err)
		}
		names, fds = append(names, name), append(fds, fd)
	}
	line, err := json.Marshal(names)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(append(line, '\n'), rights, nil)
	return err
}

// duplicate returns another descriptor of a listener. Unlike os.File.Fd it does not make the listener block.
func duplicate(l *net.TCPListener) (fd int, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(own uintptr) { fd, err = syscall.Dup(int(own)) }); e != nil {
		return 0, e
	}
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	return fd, err
}

// receiveListeners is the other side of sendListeners.
func receiveListeners(c *net.UnixConn) (map[string]net.Listener, error) {
	text, rights := make([]byte, 4<<10), make([]byte, syscall.CmsgSpace(4*maxPassed))
	n, oobn, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(text[:n], &names); err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:oobn])
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		got, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		fds = append(fds, got...)
	}
	listeners := map[string]net.Listener{}
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "listener")
		l, e := net.FileListener(f)
		_ = f.Close()
		if e != nil || i >= len(names) {
			err = errors.Join(err, e)
			continue
		}
		listeners[names[i]] = l
	}
	if err == nil && len(listeners) != len(names) {
		err = fmt.Errorf("%d of the listeners %s arrived", len(listeners), slices.Sorted(slices.Values(names)))
	}
	if err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
		return nil, err
	}
	return listeners, nil
}
