//go:build !unix

package redisserver

import (
	"os"
	"os/exec"
)

// There is no redis-server here, so that these are never sent.
var (
	signalPause  = os.Interrupt
	signalResume = os.Interrupt
)

func endWithParent(*exec.Cmd) {}
