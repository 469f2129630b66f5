// Package wait polls for conditions in tests and benchmarks. Every wait has a time limit.
package wait

import (
	"fmt"
	"testing"
	"time"
)

const (
	defaultLimit = 20 * time.Second
	pollInterval = 5 * time.Millisecond
)

// Until polls cond until it is true, fails, or the limit has passed. The problem describes the last case,
// as in "ctxgate did not become healthy".
func Until(limit time.Duration, problem string, cond func() (bool, error)) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s within %s", problem, limit)
		}
	}
}

// True polls cond and reports whether it became true within the limit.
func True(limit time.Duration, cond func() bool) bool {
	return Until(limit, "", func() (bool, error) { return cond(), nil }) == nil
}

// For fails the test if cond does not become true within 20 seconds.
func For(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	if !True(defaultLimit, cond) {
		tb.Fatalf("waited %s in vain for: %s", defaultLimit, what)
	}
}
