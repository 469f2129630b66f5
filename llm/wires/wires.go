// Package wires lists the wire shapes that the gateway serves.
package wires

import (
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// All lists the wire shapes. The first one's vendor answers requests to unknown paths that no vendor claims.
func All() []llm.Codec {
	return []llm.Codec{openaichat.Codec{}, responses.Codec{}, anthropic.Codec{}, gemini.Codec{}}
}
