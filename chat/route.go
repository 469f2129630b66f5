package chat

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// protocol are the keys that decide what becomes of a request; in other letters they are refused.
var protocol = []string{"model", "messages", "input", "stream"}

// look reads what a request says of where it goes and, of a conversation that somebody wants to look
// into, what was said in it. Both are one pass over what is new in it.
func (d *Door) look(c *call) (model string, talk *history.Dialogue, err error) {
	o := c.plan.Chat.Observation
	if c.talk && (d.deps.Shrink != nil && (o.Schema1.Enabled || !o.Birth.off()) || o.Recovery.Offer) {
		talk, err := c.hear("came")
		if err == nil {
			return talk.Model, talk, nil
		}
		if fault.KindOf(err) == fault.Full {
			return "", nil, err
		}
		if why := ambiguity(err); why != nil {
			return "", nil, unreadable(why)
		}
	}
	model, err = readModel(c.body)
	return model, nil, err
}

// ambiguity is what of an error two readers could read differently: a key that comes twice in an object
// that masking looks into, or one of its keys in other letters. Masking would cut by one reading, and
// the provider may go by another. Nil where the request is only not to be understood.
func ambiguity(err error) *jsonscan.Error {
	var why *jsonscan.Error
	if errors.As(err, &why) && (why.Reason == jsonscan.DuplicateKey || why.Reason == jsonscan.FoldedKey) {
		return why
	}
	return nil
}

// hear reads the conversation in a call's body, as that is at some station of its way.
func (c *call) hear(station string) (*history.Dialogue, error) {
	return c.plan.talks.Read(c.who.Tenant()+"\x00"+station, c.shape, c.body, c.memory)
}

// readModel is the model that a request names; "" where it names none. The body is checked in the
// same pass: what two readers could read differently goes no further.
func readModel(body []byte) (string, error) {
	s := jsonscan.New(body, 0)
	model := ""
	err := s.Object(protocol, func(key []byte) error {
		if string(key) != "model" {
			return nil
		}
		kind := s.Kind()
		raw, err := s.Skip()
		if err == nil && kind != '"' && kind != 'n' {
			return fault.New(fault.BadParams, "model: must be a string")
		}
		model = jsonscan.TextOf(raw.Of(body))
		return err
	})
	if err == nil {
		err = s.End()
	}
	var why *jsonscan.Error
	if errors.As(err, &why) {
		return "", unreadable(why)
	}
	return model, err
}

func unreadable(why *jsonscan.Error) error {
	switch why.Reason {
	case jsonscan.DuplicateKey, jsonscan.FoldedKey, jsonscan.TooDeep:
		return fault.New(fault.Invalid, "the request is refused: "+why.Error())
	}
	return fault.New(fault.Syntax, "the request is not valid JSON: "+why.Error())
}

// route finds the provider of a model: the first of the kind whose patterns fit. A request without
// a model goes to the first that takes every model.
func (p *plan) route(kind, model string) (*provider, error) {
	for _, one := range p.providers {
		if one.Kind == kind && one.takes(model) {
			return one, nil
		}
	}
	switch {
	case len(p.providers) == 0:
		return nil, fault.New(fault.Unknown, "no provider is configured; see [[providers]]")
	case model == "":
		return nil, fault.New(fault.BadParams, "the request names no model, and no provider is there for every model")
	}
	return nil, fault.New(fault.Unknown, "no provider of kind "+kind+" serves the model "+strconv.Quote(clip(model)))
}

func (p *provider) takes(model string) bool {
	if len(p.Models) == 0 || slices.Contains(p.Models, "*") {
		return true
	}
	return model != "" && slices.ContainsFunc(p.Models, func(pattern string) bool { return fits(pattern, model) })
}

// fits says whether a name is what a pattern says, in which * is any run of characters.
func fits(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !ok || !wild {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] {
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}
