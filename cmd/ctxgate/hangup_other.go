//go:build !unix

package main

import "os"

// notifyHangup does nothing where there is no such signal.
func notifyHangup(chan<- os.Signal) {}
