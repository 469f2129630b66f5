//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendsInterrupts reports whether a file is a terminal, which sends an interrupt to the agent as well.
func sendsInterrupts(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// signalExit is what a shell adds to 1 for a program that a signal ended: 128 + the signal.
func signalExit(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 127 + int(status.Signal())
	}
	return 0
}

// isRunning reports whether a process exists.
func isRunning(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
