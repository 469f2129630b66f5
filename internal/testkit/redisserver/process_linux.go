package redisserver

import (
	"os/exec"
	"syscall"
)

const (
	signalPause  = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)

func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
