package rpc

import (
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Reply is what a server answered. Strings lists, in order, every string value of result and
// of error.data longer than the asked number of code points.
type Reply struct {
	Body    []byte
	ID      jsonscan.Span // the id's JSON; empty when there is none
	IsError bool
	Strings []jsonscan.Str
}

// ParseReply reads one reply in one pass and finds its strings of more than chars code points.
// A negative chars finds them all.
func ParseReply(body []byte, depth, chars int) (Reply, error) {
	p := replyParser{s: jsonscan.New(body, depth), rep: Reply{Body: body}, chars: chars}
	if err := p.parse(); err != nil {
		return Reply{}, fault.Wrap(fault.BadReply, "the server's answer is not a JSON-RPC reply", err)
	}
	return p.rep, nil
}

// MessageID is the reply's id.
func (r *Reply) MessageID() ID {
	if r.ID.Len() == 0 {
		return ID{}
	}
	return ID{r.ID.Of(r.Body)}
}

type replyParser struct {
	s          *jsonscan.Scanner
	rep        Reply
	chars      int
	version    bool
	hasID      bool
	hasResult  bool
	nullResult bool
}

func (p *replyParser) parse() error {
	if err := envelope(p.s, p.member); err != nil {
		return err
	}
	switch {
	case !p.version:
		return invalid(`"jsonrpc" must be "2.0"`)
	case p.hasResult && p.rep.IsError && !p.nullResult, !p.hasResult && !p.rep.IsError:
		return invalid(`exactly one of "result" and "error" is needed`)
	case !p.hasID:
		return invalid(`"id" is missing`)
	}
	return nil
}

func (p *replyParser) member(key []byte) (err error) {
	switch string(key) {
	case "jsonrpc":
		p.version, err = isVersion(p.s, p.rep.Body)
	case "id":
		p.hasID = true
		p.s.Kind()
		start := p.s.Pos()
		_, err = scanID(p.s, p.rep.Body)
		p.rep.ID = jsonscan.Span{Start: start, End: p.s.Pos()}
	case "method":
		return invalid("a request where a reply was expected")
	case "result":
		p.hasResult, p.nullResult = true, p.s.Kind() == 'n'
		p.rep.Strings, _, err = p.s.Long(p.rep.Strings, p.chars)
	case "error":
		return p.error()
	}
	return err
}

// error reads the error object. Older servers write "error": null beside a result, and
// "result": null beside an error; both are taken as absent.
func (p *replyParser) error() error {
	switch p.s.Kind() {
	case 'n':
		_, err := p.s.Skip()
		return err
	case '{':
		p.rep.IsError = true
		return p.s.Object(errorKeys, p.errorMember)
	}
	return invalid(`"error" must be an object`)
}

func (p *replyParser) errorMember(key []byte) (err error) {
	if string(key) == "data" {
		p.rep.Strings, _, err = p.s.Long(p.rep.Strings, p.chars)
	}
	return err
}
