package hub_test

import (
	"os"
	"syscall"
)

// alive reports whether a process exists.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}
