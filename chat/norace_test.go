//go:build !race

package chat

const slower = 1
