package chat

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// readModelAndDialogue reads the model of a request and, if masking or reading back needs it, the
// conversation, in one pass.
func (px *Proxy) readModelAndDialogue(c *call) (model string, dialogue *history.Dialogue, err error) {
	o := c.plan.Chat.ObservationMasking
	if c.Conversation && (px.deps.Shrink != nil && (o.Schema1.Enabled || !o.NewResults.IsOff()) || o.Recovery.Offer) {
		dialogue, err := c.readDialogue("came")
		if err == nil && c.pathModel != "" {
			dialogue.Model = c.pathModel
		}
		if err == nil {
			return dialogue.Model, dialogue, nil
		}
		if fault.KindOf(err) == fault.Full {
			return "", nil, err
		}
		if why := ambiguousKey(err); why != nil {
			return "", nil, jsonFault(why)
		}
	} else if c.Conversation && px.deps.Shrink != nil && bytes.Contains(c.body, []byte("prune_id=")) {
		// For the ledger alone, which counts what the MCP endpoint cut: nothing is refused.
		dialogue, _ = c.readDialogue("came")
	}
	model, err = readModel(px.wires.protocol, c.body)
	return cmp.Or(c.pathModel, model), dialogue, err
}

// ambiguousKey is the error of a request that two parsers may read differently: a duplicate key, or a known
// key in other letters, in an object that masking reads. Masking would follow one reading and the provider
// perhaps the other. It is nil if the request is only not understood.
func ambiguousKey(err error) *jsonscan.Error {
	var why *jsonscan.Error
	if errors.As(err, &why) && (why.Reason == jsonscan.DuplicateKey || why.Reason == jsonscan.FoldedKey) {
		return why
	}
	return nil
}

// readDialogue reads the conversation in the current body. stage separates the cached conversations of
// bodies before and after recover_text was offered.
func (c *call) readDialogue(stage string) (*history.Dialogue, error) {
	return c.plan.conversations.Read(c.caller.Tenant()+"\x00"+stage, c.codec, c.body, c.memory)
}

// readModel returns the model that a request names, "" if none. It checks the body in the same pass: what two
// parsers may read differently is refused.
func readModel(protocol []string, body []byte) (string, error) {
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
		model = jsonscan.DecodeString(raw.Of(body))
		return err
	})
	if err == nil {
		err = s.End()
	}
	var why *jsonscan.Error
	if errors.As(err, &why) {
		return "", jsonFault(why)
	}
	return model, err
}

func jsonFault(why *jsonscan.Error) error {
	switch why.Reason {
	case jsonscan.DuplicateKey, jsonscan.FoldedKey, jsonscan.TooDeep:
		return fault.New(fault.InvalidRequest, "the request is refused: "+why.Error())
	}
	return fault.New(fault.Syntax, "the request is not valid JSON: "+why.Error())
}

// findProvider returns the provider of a model: the first of the kind whose patterns match. A request without
// a model goes to the first that serves every model.
func (p *activeConfig) findProvider(kind APIKind, model string) (*provider, error) {
	for _, one := range p.providers {
		if one.Kind == kind && one.servesModel(model) {
			return one, nil
		}
	}
	switch {
	case len(p.providers) == 0:
		return nil, fault.New(fault.UnknownHandle, "no provider is configured; see [[providers]]")
	case model == "":
		return nil, fault.New(fault.BadParams, "the request names no model, and no provider is there for every model")
	}
	return nil, unknownModel(kind, model)
}

func unknownModel(kind APIKind, model string) error {
	return fault.New(fault.UnknownHandle, "no provider of kind "+string(kind)+" serves the model "+strconv.Quote(fault.Clip(model)))
}

// authorize decides whether the caller may use what its request is for. If not, there is no such model or path. The pass
// must be ended.
func (c *call) authorize(ctx context.Context, t access.Target) (*gate.Pass, error) {
	pass, err := c.plan.Gate.Enter(ctx, c.caller, t)
	switch {
	case !errors.Is(err, gate.ErrDenied):
		return pass, err
	case t.Model != "":
		return nil, unknownModel(c.routed.Kind, t.Model)
	}
	return nil, errNoPath
}

var errNoPath = fault.New(fault.NotFound, "there is nothing at this path")

// servesOnlyPaths says whether a provider serves the paths of its configuration and no models.
func (p *provider) servesOnlyPaths() bool { return len(p.Models) == 0 && len(p.Paths) > 0 }

// servesEveryModel says whether a provider also serves requests that name no model.
func (p *provider) servesEveryModel() bool {
	return len(p.Models) == 0 && len(p.Paths) == 0 || slices.Contains(p.Models, "*")
}

func (p *provider) servesModel(model string) bool {
	if p.servesEveryModel() {
		return true
	}
	return model != "" && slices.ContainsFunc(p.Models, func(pattern string) bool { return glob.New(pattern).Match(model) })
}
