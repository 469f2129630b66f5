package jsonscan

import "testing"

// Without AVX2 the scanner must return the same.
func TestWithoutBlocks(t *testing.T) {
	if !haveBlocks {
		t.Skip("this machine has no AVX2: every test runs without blocks")
	}
	haveBlocks = false
	defer func() { haveBlocks = true }()
	t.Run("chars", TestCharsAreCodePoints)
	t.Run("refusals", TestRefusals)
	t.Run("far refusals", TestRefusalsFarIntoAString)
	t.Run("long", TestLongStringsFindsOnlyLongValues)
}
