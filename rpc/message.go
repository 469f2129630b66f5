package rpc

import (
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Reply is a server's answer.
type Reply struct {
	Body    []byte
	ID      jsonscan.Span // the id's JSON; empty when there is none
	Result  jsonscan.Span // the result's JSON; empty in an error
	Error   jsonscan.Span // the error object's JSON; empty in a result
	IsError bool
	// LongStrings lists, in order, the string values of result and of error.data that are longer than
	// the minimum given to the parser.
	LongStrings []jsonscan.Str
}

// MessageID is the reply's id.
func (r *Reply) MessageID() ID {
	if r.ID.Len() == 0 {
		return ID{}
	}
	return ID{r.ID.Of(r.Body)}
}

// Message is anything a server sends: a reply; with a method, a request; with a method and no id, a
// notification.
type Message struct {
	Reply
	Method string
	Params jsonscan.Span // the raw params; empty when there are none
}

// IsReply reports whether the message answers a request.
func (m *Message) IsReply() bool { return m.Method == "" }

// IsNotification reports whether the sender expects no answer.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID.Len() == 0 }

// ParseReply parses one reply and collects its strings of more than minChars code points; a negative
// minChars collects them all.
func ParseReply(body []byte, depth, minChars int) (Reply, error) {
	m, err := ParseMessage(body, depth, minChars)
	if err == nil && m.Method != "" {
		err = badReply(invalid("a request where a reply was expected"))
	}
	return m.Reply, err
}

// ParseMessage parses one message of a server in one pass. It collects strings as [ParseReply] does.
func ParseMessage(body []byte, depth, minChars int) (Message, error) {
	p := messageParser{s: jsonscan.New(body, depth), m: Message{Reply: Reply{Body: body}}, minChars: minChars}
	err := scanEnvelope(p.s, p.scanMember)
	switch {
	case err != nil:
	case !p.hasVersion:
		err = invalid(`"jsonrpc" must be "2.0"`)
	case p.hasMethod && (p.hasResult || p.m.IsError || p.m.Method == ""):
		err = invalid("a message that is a request and a reply")
	case p.hasMethod:
	case p.hasResult && p.m.IsError && !p.nullResult, !p.hasResult && !p.m.IsError:
		err = invalid(`exactly one of "result" and "error" is needed`)
	case !p.hasID:
		err = invalid(`"id" is missing`)
	}
	if err != nil {
		return Message{}, badReply(err)
	}
	return p.m, nil
}

func badReply(err error) error {
	return fault.Wrap(fault.BadReply, "the server's answer is not a JSON-RPC reply", err)
}

type messageParser struct {
	s          *jsonscan.Scanner
	m          Message
	minChars   int
	hasVersion bool
	hasID      bool
	hasMethod  bool
	hasResult  bool
	nullResult bool
}

func (p *messageParser) scanMember(key []byte) (err error) {
	switch string(key) {
	case "jsonrpc":
		p.hasVersion, err = isVersion(p.s, p.m.Body)
	case "id":
		p.hasID = true
		p.s.Kind()
		start := p.s.Pos()
		_, err = scanID(p.s, p.m.Body)
		p.m.ID = jsonscan.Span{Start: start, End: p.s.Pos()}
	case "method":
		p.hasMethod = true
		if p.s.Kind() == '"' {
			p.m.Method, err = scanText(p.s, p.m.Body)
		}
	case "params":
		p.m.Params, err = p.s.Skip()
	case "result":
		p.hasResult, p.nullResult = true, p.s.Kind() == 'n'
		start := p.s.Pos()
		p.m.LongStrings, _, err = p.s.LongStrings(p.m.LongStrings, p.minChars)
		p.m.Result = jsonscan.Span{Start: start, End: p.s.Pos()}
	case "error":
		return p.scanError()
	}
	return err
}

// scanError reads the error object. Older servers write "error": null beside a result, and
// "result": null beside an error; both count as absent.
func (p *messageParser) scanError() error {
	switch p.s.Kind() {
	case 'n':
		_, err := p.s.Skip()
		return err
	case '{':
		p.m.IsError = true
		start := p.s.Pos()
		err := p.s.Object(errorKeys, func(key []byte) (err error) {
			if string(key) == "data" {
				p.m.LongStrings, _, err = p.s.LongStrings(p.m.LongStrings, p.minChars)
			}
			return err
		})
		p.m.Error = jsonscan.Span{Start: start, End: p.s.Pos()}
		return err
	}
	return invalid(`"error" must be an object`)
}

// ErrorCode is the JSON-RPC code of an error reply; 0 for a result.
func (r *Reply) ErrorCode() int {
	if !r.IsError {
		return 0
	}
	fields, err := jsonscan.ReadFields(r.Body, r.Error)
	if err != nil {
		return 0
	}
	raw, _ := fields.Get("code")
	code, _ := strconv.Atoi(string(raw))
	return code
}
