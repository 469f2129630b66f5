//go:build !race

package access

const slower = 1
