package mcp

import (
	"errors"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Params are a request's params laid open: the members, and those of _meta. The raw bytes have
// passed the strict parse of the envelope.
type Params struct {
	raw    []byte
	fields jsonscan.Fields
	meta   jsonscan.Fields
}

// maxMembers is the most members that params and _meta may have together. They are held for as long
// as a call lasts, and no method has more than a few.
const maxMembers = 1000

var errMembers = errors.New("params have too many members")

// ReadParams lays params open. None at all are as good as an empty object.
func ReadParams(raw []byte) (Params, error) {
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

// Raw is the params as they came.
func (p Params) Raw() []byte { return p.raw }

// Get is a member's raw value.
func (p Params) Get(key string) ([]byte, bool) { return p.fields.Get(key) }

// Text is a member's text.
func (p Params) Text(key string) string { return p.fields.Text(key) }

// Meta is the raw value of a key of _meta.
func (p Params) Meta(key string) ([]byte, bool) { return p.meta.Get(key) }

// MetaText is the text of a key of _meta.
func (p Params) MetaText(key string) string { return p.meta.Text(key) }

// With is the params with some members changed, and some of _meta. A _meta that is not there is
// made when it gets a member; one that is left empty by the changes stays.
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

// Quote is a text as a JSON string.
func Quote(s string) []byte { return jsonscan.AppendString(nil, s) }

// QuoteAll is some texts as a JSON array of strings.
func QuoteAll(texts []string) []byte {
	dst := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(dst, s)
	}
	return append(dst, ']')
}

// Client is what a client says of itself: in initialize, or in each request.
type Client struct {
	Version      string
	Capabilities []byte // the raw object; {} where the client declared none
	Info         []byte // the raw object; nil where it did not say
}

// Can says whether the client declared that it answers a method that servers ask.
func (c Client) Can(method string) bool {
	declared, err := jsonscan.FieldsOf(c.Capabilities)
	if err != nil {
		return false
	}
	_, ok := declared.Get(capabilityOf(method))
	return ok
}

// Answers says whether the client declared that it answers anything a server may ask.
func (c Client) Answers() bool { return c.Can(RootsList) || c.Can(Sampling) || c.Can(Elicit) }

func capabilityOf(method string) string {
	switch method {
	case RootsList:
		return "roots"
	case Sampling:
		return "sampling"
	case Elicit:
		return "elicitation"
	}
	return ""
}

// MissingCapability is the data of the error for a client that did not declare what answering
// method takes.
func MissingCapability(method string) []byte {
	return []byte(`{"requiredCapabilities":{"` + capabilityOf(method) + `":{}}}`)
}
