package llmtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// bytesPerToken is what a token is here: four bytes of the rendered prompt.
const bytesPerToken = 4

// Tokens is how many tokens a text has. The tokens of a prompt are those of its rendering as a
// whole: a part that is not a multiple of four bytes long shares its last token with the next.
func Tokens(text string) int { return tokensOf(len(text)) }

func tokensOf(bytes int) int { return (bytes + bytesPerToken - 1) / bytesPerToken }

// block is a stretch of the rendered prompt: a tool, a part of the system prompt, a message or a
// block of one.
type block struct {
	text string
	// mark is how long the prefix that ends here shall be cached; 0 when nobody asked.
	mark time.Duration
	// salt is what changes the cache's key here though the model does not read it: settings that the
	// real provider takes into the prefix.
	salt string
}

type prompt []block

func (p *prompt) add(parts ...string) {
	*p = append(*p, block{text: strings.Join(parts, "")})
}

// size is the length in bytes.
func (p prompt) size() int {
	n := 0
	for _, b := range p {
		n += len(b.text)
	}
	return n
}

func (p prompt) tokens() int { return tokensOf(p.size()) }

// compact is JSON without the white space between its tokens: the model sees a schema, not its
// indentation. The order of keys stays, for providers keep it.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// imageTokens is what an image costs, whatever it shows.
const imageTokens = 85

// picture stands for an image, or anything else that is not text: the same picture is the same
// text, and all are equally long.
func picture(raw json.RawMessage) string {
	sum := sha256.Sum256([]byte(compact(raw)))
	digest := hex.EncodeToString(sum[:])
	return strings.Repeat(digest, 1+imageTokens*bytesPerToken/len(digest))[:imageTokens*bytesPerToken]
}
