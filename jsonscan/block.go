package jsonscan

import "math/bits"

// A block is 64 bytes of a string seen at once, one bit a byte.
type block struct {
	slash   uint64 // a backslash
	quote   uint64 // a quote
	special uint64 // a control character, or part of a character beyond ASCII
	letter  uint64 // not the letter of a two-byte escape
}

// batch is how many blocks are classified in one call.
const batch = 8

// scanBlocks skips plain text and two-byte escapes from data[i] on, in whole blocks, with no branch
// per escape: text full of line breaks and quotes is as fast as text without. It stops before the
// first byte that it cannot handle: the closing quote, a \u, a character beyond ASCII, or an error,
// and returns how many escapes it skipped.
func scanBlocks(data []byte, i int) (at, escapes int) {
	var blocks [batch]block
	escaped := uint64(0) // 1 when the byte at i is the letter of an escape that began before it
	for n := 1; len(data)-i >= 64; n = batch {
		n = min(n, (len(data)-i)>>6)
		classify(data[i:], n, &blocks)
		for _, b := range blocks[:n] {
			var letters uint64
			letters, escaped = escapedBy(b.slash, escaped)
			if hit := b.quote&^letters | b.special | b.letter&letters; hit != 0 {
				k := bits.TrailingZeros64(hit)
				before := letters & (1<<k - 1)
				at = i + k
				if letters>>k&1 != 0 {
					at-- // stop at the escape's backslash
				}
				return at, escapes + bits.OnesCount64(before)
			}
			escapes += bits.OnesCount64(letters)
			i += 64
		}
	}
	if escaped != 0 {
		i--
	}
	return i, escapes
}

// escapedBy marks the bytes that a backslash escapes, given the backslashes of a block and
// whether its first byte is escaped by the block before; next is the same for the block after.
// In a run of backslashes every second one is escaped: adding the run's first bit to the run
// carries past its end, and whether the carry lands on an even or odd place tells the parity.
func escapedBy(slash, first uint64) (letters, next uint64) {
	const even = 0x5555555555555555
	slash &^= first
	follows := slash<<1 | first
	oddStarts := slash &^ even &^ follows
	evenEnds, carry := bits.Add64(oddStarts, slash, 0)
	return (even ^ evenEnds<<1) & follows, carry
}

// classifyBytes is the reference implementation of classify, a byte at a time.
func classifyBytes(data []byte, n int, out *[batch]block) {
	for i := range n {
		var b block
		for k, c := range data[i*64 : i*64+64] {
			bit := uint64(1) << k
			if c == '\\' {
				b.slash |= bit
			}
			if c == '"' {
				b.quote |= bit
			}
			if c < 0x20 || c >= 0x80 {
				b.special |= bit
			}
			if simpleEscape[c] == 0 {
				b.letter |= bit
			}
		}
		out[i] = b
	}
}
