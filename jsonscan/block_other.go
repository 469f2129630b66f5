//go:build !amd64

package jsonscan

// haveBlocks is false without a fast classify: the word-at-a-time loop of scanString does all the work
// then.
const haveBlocks = false

func classify(data []byte, n int, out *[batch]block) { classifyBytes(data, n, out) }
