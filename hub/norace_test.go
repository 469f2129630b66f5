//go:build !race

package hub_test

const slower = 1
