package mcp

import (
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/rpc"
)

// Content is where a result names resources, and where it carries binary data.
type Content struct {
	URIs   []jsonscan.Span // raw strings, quotes included
	Binary []jsonscan.Span // raw strings, quotes included
}

// ReadContent looks through the content of a tool result, a resource or a prompt: the blocks of
// content, contents, and of the messages' content. What is elsewhere is the server's own.
func ReadContent(m rpc.Message) (c Content, err error) {
	result, err := ReadResult(m)
	if err != nil {
		return c, err
	}
	for _, key := range []string{"content", "contents"} {
		if f, ok := result.Field(key); ok {
			err = c.blocks(m.Body, f.Value)
		}
		if err != nil {
			return c, err
		}
	}
	messages, ok := result.Field("messages")
	if !ok {
		return c, nil
	}
	return c, jsonscan.Elements(m.Body, messages.Value, func(s jsonscan.Span) error {
		message, err := jsonscan.ReadFields(m.Body, s)
		if err != nil {
			return err
		}
		if f, ok := message.Field("content"); ok {
			return c.blocks(m.Body, f.Value)
		}
		return nil
	})
}

// blocks reads one block, or an array of them.
func (c *Content) blocks(body []byte, at jsonscan.Span) error {
	if body[at.Start] == '{' {
		return c.block(body, at)
	}
	return jsonscan.Elements(body, at, func(s jsonscan.Span) error { return c.block(body, s) })
}

func (c *Content) block(body []byte, at jsonscan.Span) error {
	b, err := jsonscan.ReadFields(body, at)
	if err != nil {
		return err
	}
	for _, f := range b.All() {
		switch f.Key {
		case "uri":
			c.URIs = appendString(c.URIs, body, f.Value)
		case "blob":
			c.Binary = appendString(c.Binary, body, f.Value)
		case "data":
			if t := b.Text("type"); t == "image" || t == "audio" {
				c.Binary = appendString(c.Binary, body, f.Value)
			}
		case "resource":
			if err := c.block(body, f.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendString(dst []jsonscan.Span, body []byte, at jsonscan.Span) []jsonscan.Span {
	if body[at.Start] == '"' {
		return append(dst, at)
	}
	return dst
}
