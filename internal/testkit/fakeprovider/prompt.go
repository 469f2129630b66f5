package fakeprovider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// BytesPerToken defines a token: four bytes of the rendered prompt.
const BytesPerToken = 4

// Tokens counts the tokens of a text. A prompt is counted as a whole: a part whose length is not a
// multiple of four bytes shares its last token with the next part.
func Tokens(text string) int { return tokensOf(len(text)) }

func tokensOf(bytes int) int { return (bytes + BytesPerToken - 1) / BytesPerToken }

// block is a part of the rendered prompt: a tool, a part of the system prompt, a message or a block of
// one.
type block struct {
	text string
	// breakpointTTL is the TTL of the cache breakpoint at the block's end; 0: no breakpoint.
	breakpointTTL time.Duration
	// salt changes the cache key: settings that are part of the prefix though the model does not read them.
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

// compact removes insignificant white space, which does not reach the model. Key order stays, as in the
// real providers.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// imageTokens is the cost of any image.
const imageTokens = 85

// imagePlaceholder stands for an image or other non-text content: equal content gives equal text, and
// all are equally long.
func imagePlaceholder(raw json.RawMessage) string {
	sum := sha256.Sum256([]byte(compact(raw)))
	digest := hex.EncodeToString(sum[:])
	return strings.Repeat(digest, 1+imageTokens*BytesPerToken/len(digest))[:imageTokens*BytesPerToken]
}
