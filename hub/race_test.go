//go:build race

package hub_test

// slower is how much longer things take under the race detector, at most.
const slower = 20
