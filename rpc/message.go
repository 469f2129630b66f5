package rpc

import (
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Message is anything a server sends: a reply, or with a method a request or, without an id, a
// notification.
type Message struct {
	Reply
	Method string
	Params jsonscan.Span // the raw params; empty when there are none
}

// IsReply says that the message answers a request.
func (m *Message) IsReply() bool { return m.Method == "" }

// IsNotification says that the sender expects no answer.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID.Len() == 0 }

// ParseMessage reads one message of a server in one pass and finds the strings of its result of
// more than chars code points, as [ParseReply] does.
func ParseMessage(body []byte, depth, chars int) (Message, error) {
	p := messageParser{s: jsonscan.New(body, depth), m: Message{Reply: Reply{Body: body}}, chars: chars}
	if err := p.parse(); err != nil {
		return Message{}, badReply(err)
	}
	return p.m, nil
}

type messageParser struct {
	s          *jsonscan.Scanner
	m          Message
	chars      int
	version    bool
	hasID      bool
	hasMethod  bool
	hasResult  bool
	nullResult bool
}

func (p *messageParser) parse() error {
	if err := envelope(p.s, p.member); err != nil {
		return err
	}
	switch {
	case !p.version:
		return invalid(`"jsonrpc" must be "2.0"`)
	case p.hasMethod && (p.hasResult || p.m.IsError || p.m.Method == ""):
		return invalid("a message that is a request and a reply")
	case p.hasMethod:
		return nil
	case p.hasResult && p.m.IsError && !p.nullResult, !p.hasResult && !p.m.IsError:
		return invalid(`exactly one of "result" and "error" is needed`)
	case !p.hasID:
		return invalid(`"id" is missing`)
	}
	return nil
}

func (p *messageParser) member(key []byte) (err error) {
	switch string(key) {
	case "jsonrpc":
		p.version, err = isVersion(p.s, p.m.Body)
	case "id":
		p.hasID = true
		p.s.Kind()
		start := p.s.Pos()
		_, err = scanID(p.s, p.m.Body)
		p.m.ID = jsonscan.Span{Start: start, End: p.s.Pos()}
	case "method":
		p.hasMethod = true
		if p.s.Kind() == '"' {
			p.m.Method, err = text(p.s, p.m.Body)
		}
	case "params":
		p.m.Params, err = p.s.Skip()
	case "result":
		p.hasResult, p.nullResult = true, p.s.Kind() == 'n'
		start := p.s.Pos()
		p.m.Strings, _, err = p.s.Long(p.m.Strings, p.chars)
		p.m.Result = jsonscan.Span{Start: start, End: p.s.Pos()}
	case "error":
		return p.error()
	}
	return err
}

// error reads the error object. Older servers write "error": null beside a result, and
// "result": null beside an error; both are taken as absent.
func (p *messageParser) error() error {
	switch p.s.Kind() {
	case 'n':
		_, err := p.s.Skip()
		return err
	case '{':
		p.m.IsError = true
		start := p.s.Pos()
		err := p.s.Object(errorKeys, p.errorMember)
		p.m.Error = jsonscan.Span{Start: start, End: p.s.Pos()}
		return err
	}
	return invalid(`"error" must be an object`)
}

func (p *messageParser) errorMember(key []byte) (err error) {
	if string(key) == "data" {
		p.m.Strings, _, err = p.s.Long(p.m.Strings, p.chars)
	}
	return err
}
