package pins

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// lookAlikes are letters of other scripts that look like Latin ones, each row after the Latin letter that it looks like.
// Full-width, mathematical and other compatibility forms are no part of it: normalization takes them away. Nor are
// characters within ASCII, such as l and 1: people may confuse them, but models read them as they are.
var lookAlikes = func() map[rune]rune {
	table := map[rune]rune{}
	for _, row := range []string{
		"AАΑᎪꓮ", "aаɑα", "BВΒᏴꓐ", "bЬьƄᏏ", "CСϹᏟꓚ", "cсϲᴄ", "DᎠꓓ", "dԁᏧɗ", "EЕΕᎬꓰ", "eеҽє℮", "FϜꓝ", "fẝ",
		"GԌᏀꓖ", "gɡց", "HНΗᎻꓧ", "hһհᏂ", "IІΙӀƖᏆ", "iіιɩ", "JЈᎫꓙ", "jјϳ", "KКΚᏦꓗ", "kкκᴋ", "LᏞꓡ", "lӏ",
		"MМΜᎷꓟ", "mм", "NΝꓠ", "nոռп", "OОΟՕꓳ", "oоοօσᴏ", "PРΡᏢꓑ", "pрρ", "QԚ", "qԛգ", "RᎡꓣ", "rгᴦ", "SЅՏᏚꓢ", "sѕꜱ",
		"TТΤᎢꓔ", "tтτ", "UՍꓴ", "uυսᴜц", "VѴᏙꓦ", "vѵνᴠ", "WԜᎳꓪ", "wԝաᴡω", "XХΧꓫ", "xхχ", "YҮΥꓬ", "yуүγʏ", "ZΖᏃꓜ", "zᴢ",
		"-‐‑‒–—―−", "_ˍ", ".․", ":׃։∶", "/⁄∕",
	} {
		runes := []rune(row)
		for _, r := range runes[1:] {
			table[r] = runes[0]
		}
	}
	return table
}()

// Skeleton returns the same text for names that look alike: in upper or lower case, in compatibility forms, with letters
// of other scripts, or with characters that nobody sees.
func Skeleton(name string) string {
	if isPlainLower(name) {
		return name
	}
	folded := norm.NFKC.String(strings.Map(latinLetter, name)) // some look-alikes have other compatibility forms
	return strings.Map(func(r rune) rune {
		if IsHidden(r) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(latinLetter(r)))
	}, folded)
}

// latinLetter is the Latin letter that a character looks like, or the character itself.
func latinLetter(r rune) rune {
	if latin, ok := lookAlikes[r]; ok {
		return latin
	}
	return r
}

// isPlainLower reports whether a name is its own skeleton, as most are.
func isPlainLower(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c >= 0x7F || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}
