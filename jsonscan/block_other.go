//go:build !amd64

package jsonscan

// haveBlocks is false where there is no fast way to fill a block: the word-at-a-time loop of
// scanString does all the work then.
const haveBlocks = false

func classify(data []byte, n int, out *[batch]block) { classifyBytes(data, n, out) }
