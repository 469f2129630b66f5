//go:build race

package hub_test

// slower is how many times slower the race detector makes a test, at most.
const slower = 20
