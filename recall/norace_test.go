//go:build !race

package recall

const slower = 1
