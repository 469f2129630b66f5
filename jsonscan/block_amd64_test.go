package jsonscan

import "testing"

// What other machines do must be right here too: the scanner without its blocks.
func TestWithoutBlocks(t *testing.T) {
	if !haveBlocks {
		t.Skip("this machine has no AVX2: every test runs without blocks")
	}
	haveBlocks = false
	defer func() { haveBlocks = true }()
	t.Run("chars", TestCharsAreCodePoints)
	t.Run("refusals", TestRefusals)
	t.Run("far refusals", TestRefusalsFarIntoAString)
	t.Run("long", TestLongFindsOnlyLongValues)
}
