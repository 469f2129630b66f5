//go:build !unix

package main

import "os"

// notifyHangup does nothing: there is no SIGHUP on this system.
func notifyHangup(chan<- os.Signal) {}
