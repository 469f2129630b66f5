package rpc

import (
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Request is a parsed request or notification. Raw slices point into the body it was parsed
// from.
type Request struct {
	Body   []byte // the message as it came
	ID     ID     // zero for a notification
	Method string
	Params []byte // the raw params object or array; nil when absent

	// What params names, where it names anything: the tool or prompt, and the resource.
	Name, URI string
}

// ErrReply refuses a reply where a request was expected. A door that takes both looks for it.
var ErrReply = invalid("a reply where a request was expected")

// IsNotification says that the sender expects no reply.
func (r *Request) IsNotification() bool { return !r.ID.IsSet() }

// ParseRequest reads one request or notification. When it refuses one whose id could still be
// read, the returned Request holds that id, so that the refusal can carry it.
func ParseRequest(body []byte, depth int) (Request, error) {
	p := requestParser{s: jsonscan.New(body, depth), req: Request{Body: body}}
	err := p.parse()
	if err != nil {
		p.req.ID = salvageID(body, depth)
	}
	return p.req, err
}

type requestParser struct {
	s         *jsonscan.Scanner
	req       Request
	version   bool
	hasMethod bool
	isReply   bool
}

func (p *requestParser) parse() error {
	if err := envelope(p.s, p.member); err != nil {
		return refuse(err)
	}
	switch {
	case !p.version:
		return invalid(`"jsonrpc" must be "2.0"`)
	case p.isReply:
		return ErrReply
	case !p.hasMethod || p.req.Method == "":
		return invalid(`"method" is missing`)
	}
	return nil
}

func (p *requestParser) member(key []byte) (err error) {
	body := p.req.Body
	switch string(key) {
	case "jsonrpc":
		p.version, err = isVersion(p.s, body)
	case "id":
		p.req.ID, err = scanID(p.s, body)
	case "method":
		p.hasMethod = true
		if p.s.Kind() != '"' {
			_, err = p.s.Skip()
			return err
		}
		p.req.Method, err = text(p.s, body)
	case "params":
		return p.params()
	case "result", "error":
		p.isReply = true
		_, err = p.s.SkipStrict()
	default:
		_, err = p.s.SkipStrict()
	}
	return err
}

func (p *requestParser) params() error {
	kind := p.s.Kind()
	start := p.s.Pos()
	switch kind {
	case '{':
		if err := p.s.Object(paramsKeys, p.param); err != nil {
			return err
		}
	case '[':
		if _, err := p.s.SkipStrict(); err != nil {
			return err
		}
	default:
		if _, err := p.s.Skip(); err != nil {
			return err
		}
		return invalid(`"params" must be an object or an array`)
	}
	p.req.Params = p.req.Body[start:p.s.Pos()]
	return nil
}

func (p *requestParser) param(key []byte) (err error) {
	isText := p.s.Kind() == '"'
	switch {
	case isText && string(key) == "name":
		p.req.Name, err = text(p.s, p.req.Body)
	case isText && string(key) == "uri":
		p.req.URI, err = text(p.s, p.req.Body)
	default:
		_, err = p.s.SkipStrict()
	}
	return err
}

func text(s *jsonscan.Scanner, body []byte) (string, error) {
	str, err := s.Str()
	if err != nil {
		return "", err
	}
	return string(jsonscan.AppendText(nil, str.Of(body))), nil
}
