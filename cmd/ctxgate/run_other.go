//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// signalExit is nothing: no signal ends programs here.
func signalExit(*exec.ExitError) int { return 0 }

// sendsInterrupts reports whether a file is a console, which sends an interrupt to the agent as well.
func sendsInterrupts(f *os.File) bool { return isTerminal(f) }

// isRunning reports whether a process exists.
func isRunning(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
