//go:build race

package access

// slower is the most by which the race detector slows things down.
const slower = 20
