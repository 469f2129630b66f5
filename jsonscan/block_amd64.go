package jsonscan

import "golang.org/x/sys/cpu"

// haveBlocks says whether this CPU classifies 64 bytes at once.
var haveBlocks = cpu.X86.HasAVX2

// classify fills out[:n] from the first n*64 bytes of data.
func classify(data []byte, n int, out *[batch]block) {
	_ = data[n*64-1]
	_ = out[n-1]
	classifyAVX2(&data[0], n, &out[0])
}

//go:noescape
func classifyAVX2(p *byte, n int, out *block)
