//go:build unix && !linux

package redisserver

import (
	"os/exec"
	"syscall"
)

const (
	signalPause  = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)

func endWithParent(*exec.Cmd) {}
