package hub_test

import (
	"os"
	"syscall"
)

// alive says whether a process is there.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}
