package mcp

import (
	"errors"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Params is the parsed params of a request: its members, and those of _meta. The raw bytes have passed
// the strict parse of the envelope.
type Params struct {
	raw    []byte
	fields jsonscan.Fields
	meta   jsonscan.Fields
}

// maxMembers bounds the members of params and _meta together. They stay in memory during a call, and no
// method has more than a few.
const maxMembers = 1000

var errMembers = errors.New("params have too many members")

// ParseParams parses params. Absent params count as an empty object.
func ParseParams(raw []byte) (Params, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return Params{}, err
	}
	p := Params{raw: raw, fields: fields}
	if m, ok := fields.Field("_meta"); ok {
		p.meta, err = jsonscan.ReadFields(raw, m.Value)
	}
	if len(fields.All())+len(p.meta.All()) > maxMembers {
		return Params{}, errMembers
	}
	return p, err
}

// Raw is the params as they arrived.
func (p Params) Raw() []byte { return p.raw }

// Get is a member's raw value.
func (p Params) Get(key string) ([]byte, bool) { return p.fields.Get(key) }

// Text is the text of a string member.
func (p Params) Text(key string) string { return p.fields.Text(key) }

// Meta is the raw value of a key of _meta.
func (p Params) Meta(key string) ([]byte, bool) { return p.meta.Get(key) }

// MetaText is the text of a key of _meta.
func (p Params) MetaText(key string) string { return p.meta.Text(key) }

// With is the params with changed members, and changed members of _meta. A missing _meta is added when it
// gets a member; one that becomes empty stays.
func (p Params) With(members, meta []jsonscan.Change) []byte {
	if len(meta) > 0 {
		if _, ok := p.fields.Get("_meta"); ok {
			members = append(members, jsonscan.Change{Key: "_meta", Value: p.meta.With(meta...)})
		} else if fresh := newObject(meta); fresh != nil {
			members = append(members, jsonscan.Change{Key: "_meta", Value: fresh})
		}
	}
	if len(members) == 0 {
		return p.raw
	}
	return p.fields.With(members...)
}

func newObject(changes []jsonscan.Change) []byte {
	empty, _ := jsonscan.FieldsOf([]byte("{}"))
	if out := empty.With(changes...); len(out) > len("{}") {
		return out
	}
	return nil
}

// Quote writes a text as a JSON string.
func Quote(s string) []byte { return jsonscan.AppendQuoted(nil, s) }

// QuoteAll writes texts as a JSON array of strings.
func QuoteAll(texts []string) []byte {
	dst := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendQuoted(dst, s)
	}
	return append(dst, ']')
}

// Client is what a client declares about itself: in initialize, or in each request.
type Client struct {
	Version      string
	Capabilities []byte // the raw object; {} if the client declared none
	Info         []byte // the raw object; nil if it declared none
}

// Supports reports whether the client declared the capability for a server-to-client method.
func (c Client) Supports(method string) bool {
	declared, err := jsonscan.FieldsOf(c.Capabilities)
	if err != nil {
		return false
	}
	_, ok := declared.Get(capabilityOf(method))
	return ok
}

// SupportsPart reports whether the client declared a part of the capability for such a method, such as elicitation by url.
func (c Client) SupportsPart(method, part string) bool {
	declared, err := jsonscan.FieldsOf(c.Capabilities)
	if err != nil {
		return false
	}
	raw, _ := declared.Get(capabilityOf(method))
	parts, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return false
	}
	_, ok := parts.Get(part)
	return ok
}

// SupportsInput reports whether the client declared any such capability.
func (c Client) SupportsInput() bool {
	return c.Supports(RootsList) || c.Supports(SamplingCreateMessage) || c.Supports(ElicitationCreate)
}

func capabilityOf(method string) string {
	switch method {
	case RootsList:
		return "roots"
	case SamplingCreateMessage:
		return "sampling"
	case ElicitationCreate:
		return "elicitation"
	}
	return ""
}

// MissingCapability is the error data for a client that did not declare the capability for method.
func MissingCapability(method string) []byte {
	return []byte(`{"requiredCapabilities":{"` + capabilityOf(method) + `":{}}}`)
}
