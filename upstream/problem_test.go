package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"syscall"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// What is wrong with a server is said in plain words, without addresses, paths and messages of the runtime.
func TestProblemOf(t *testing.T) {
	down := func(err error) error { return fault.Wrap(fault.Unavailable, "the server is not available", err) }
	for want, err := range map[string]error{
		"its process ended with exit status 3":           down(&wire.EndedError{Err: errors.New("exit status 3")}),
		"its process was ended by a signal (killed)":     down(&wire.EndedError{Err: errors.New("signal: killed")}),
		"its command or working directory was not found": down(&exec.Error{Name: "/x/y", Err: exec.ErrNotFound}),
		"its command may not be run":                     down(&fs.PathError{Op: "exec", Path: "/x/y", Err: fs.ErrPermission}),
		"connection refused":                             down(fmt.Errorf("post: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})),
		"its host name was not found":                    down(&net.DNSError{Name: "x.test", Err: "no such host"}),
		"the server refused initialize":                  fault.Wrap(fault.Unavailable, "the server did not start", fault.Wrap(fault.BadReply, "the server refused initialize", errors.New("code 1"))),
		"the server is not available":                    down(errors.New("read tcp 10.0.0.1:1: reset")),
		"":                                               errors.New("private"),
	} {
		checkEqual(t, fmt.Sprint(err), problemOf(err), want)
	}
}

// Of what a child printed the line counts that says why it ended.
func TestTelltaleLine(t *testing.T) {
	for want, lines := range map[string][]string{
		"":                               nil,
		"ready":                          {"starting", "ready"},
		"Error: Cannot find module 'x'":  {"node:internal/modules/cjs/loader:1", "  throw err;", "  ^", "", "Error: Cannot find module 'x'", "    at main (y:1)", "", "Node.js v22.1.0"},
		"ValueError: API_KEY is not set": {"Traceback (most recent call last):", `  File "/x/y.py", line 1, in <module>`, "ValueError: API_KEY is not set"},
		"npm error 404 Not Found - x":    {"npm error code E404", "npm error 404 Not Found - x", "npm error A complete log of this run can be found in: /x"},
	} {
		checkEqual(t, fmt.Sprint(lines), telltaleLine(lines), want)
	}
}
