//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// isSubreaper says that there is no subreaper here: processes that leave the process group are not found.
const isSubreaper = false

func becomeSubreaper() {}

func closeOnExecFrom(uint) error { return errors.ErrUnsupported }

func signalTree(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }
