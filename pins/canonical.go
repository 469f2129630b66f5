package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// pinnedKeys are the members of a tool that models and clients act on.
var pinnedKeys = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}

// Definition is the definition of a tool, or the instructions of a server.
type Definition struct {
	Hash string // SHA-256 of the canonical form, in hexadecimal
	Text []byte // the canonical form: an object, or a string for instructions; nil where only the hash was kept
}

// ToolDefinition returns the definition of a tool as its server listed it. Keys of an object are sorted and white space is
// left out, so that neither counts. Numbers stay as they are written: 1 and 1.0 are different, and so are two integers that
// a parser of floating-point numbers takes for the same. Strings are compared by their characters, however those are escaped.
func ToolDefinition(raw []byte) (Definition, error) {
	c := canonicalizer{raw, jsonscan.New(raw, 0)}
	text, err := c.appendObject(nil, isPinned)
	if err == nil {
		err = c.scan.End()
	}
	if err != nil {
		return Definition{}, fmt.Errorf("the definition of a tool: %w", err)
	}
	return newDefinition(text), nil
}

// TextDefinition returns the definition of a server's instructions.
func TextDefinition(text string) Definition {
	return newDefinition(jsonscan.AppendQuoted(nil, text))
}

func newDefinition(canonical []byte) Definition {
	sum := sha256.Sum256(canonical)
	return Definition{Hash: hex.EncodeToString(sum[:]), Text: canonical}
}

// isPinned reports whether a member of a tool counts. Some parsers do not tell upper from lower case: a member that one
// of them takes for a description counts as well.
func isPinned(key string) bool {
	return slices.ContainsFunc(pinnedKeys, func(name string) bool { return strings.EqualFold(name, key) })
}

// canonicalizer reads a document once and writes its values in canonical form.
type canonicalizer struct {
	data []byte
	scan *jsonscan.Scanner
}

// member is one member of an object in canonical form, by its place in a buffer.
type member struct {
	key        string
	start, end int
}

// appendValue appends the value at the cursor.
func (c canonicalizer) appendValue(dst []byte) ([]byte, error) {
	switch c.scan.Kind() {
	case '{':
		return c.appendObject(dst, func(string) bool { return true })
	case '[':
		return c.appendArray(dst)
	}
	at, err := c.scan.Skip()
	raw := at.Of(c.data)
	if bytes.IndexByte(raw, '\\') >= 0 { // a string
		return jsonscan.AppendQuoted(dst, jsonscan.DecodeString(raw)), err
	}
	return append(dst, raw...), err
}

// appendObject appends the object at the cursor: the members that count, by their keys. Members with the same key stay
// in their order.
func (c canonicalizer) appendObject(dst []byte, counts func(key string) bool) ([]byte, error) {
	var members []member
	var buf []byte
	err := c.scan.Members(func(raw []byte) (err error) {
		key := string(raw)
		if !counts(key) {
			return nil
		}
		start := len(buf)
		buf, err = c.appendValue(append(jsonscan.AppendQuoted(buf, key), ':'))
		members = append(members, member{key, start, len(buf)})
		return err
	})
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, buf[m.start:m.end]...)
	}
	return append(dst, '}'), err
}

func (c canonicalizer) appendArray(dst []byte) ([]byte, error) {
	dst = append(dst, '[')
	start := len(dst)
	err := c.scan.Array(func() (err error) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst, err = c.appendValue(dst)
		return err
	})
	return append(dst, ']'), err
}
