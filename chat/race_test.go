//go:build race

package chat

// slower is how much longer things take under the race detector, at most.
const slower = 20
