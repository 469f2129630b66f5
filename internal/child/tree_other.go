//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

func programAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopts says that there is no subreaper here: what leaves the process group is lost to us.
const adopts = false

func adopt() {}

func closeOnExecFrom(uint) error { return errors.ErrUnsupported }

func signalTree(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }
