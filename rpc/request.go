package rpc

import (
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Request is a parsed request or notification. Its slices point into Body.
type Request struct {
	Body   []byte // the message as it came
	ID     ID     // zero for a notification
	Method string
	Params []byte // the raw params object or array; nil when absent

	// Name and URI are params.name (of a tool or prompt) and params.uri; empty when absent.
	Name, URI string
}

// ErrUnexpectedReply is returned for a reply where a request was expected. An endpoint that accepts
// both checks for it.
var ErrUnexpectedReply = invalid("a reply where a request was expected")

// IsNotification reports whether the sender expects no reply.
func (r *Request) IsNotification() bool { return !r.ID.IsSet() }

// ParseRequest parses one request or notification. If it rejects a message whose id can still be read,
// the returned Request holds that id for the error reply.
func ParseRequest(body []byte, depth int) (Request, error) {
	p := requestParser{s: jsonscan.New(body, depth), req: Request{Body: body}}
	err := scanEnvelope(p.s, p.scanMember)
	switch {
	case err != nil:
		err = toFault(err)
	case !p.hasVersion:
		err = invalid(`"jsonrpc" must be "2.0"`)
	case p.isReply:
		err = ErrUnexpectedReply
	case !p.hasMethod || p.req.Method == "":
		err = invalid(`"method" is missing`)
	}
	if err != nil {
		p.req.ID = salvageID(body, depth)
	}
	return p.req, err
}

type requestParser struct {
	s          *jsonscan.Scanner
	req        Request
	hasVersion bool
	hasMethod  bool
	isReply    bool
}

func (p *requestParser) scanMember(key []byte) (err error) {
	body := p.req.Body
	switch string(key) {
	case "jsonrpc":
		p.hasVersion, err = isVersion(p.s, body)
	case "id":
		p.req.ID, err = scanID(p.s, body)
	case "method":
		p.hasMethod = true
		if p.s.Kind() != '"' {
			_, err = p.s.Skip()
			return err
		}
		p.req.Method, err = scanText(p.s, body)
	case "params":
		return p.scanParams()
	case "result", "error":
		p.isReply = true
		_, err = p.s.SkipStrict()
	default:
		_, err = p.s.SkipStrict()
	}
	return err
}

func (p *requestParser) scanParams() error {
	kind := p.s.Kind()
	start := p.s.Pos()
	switch kind {
	case '{':
		if err := p.s.Object(paramsKeys, p.scanParam); err != nil {
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

func (p *requestParser) scanParam(key []byte) (err error) {
	isText := p.s.Kind() == '"'
	switch {
	case isText && string(key) == "name":
		p.req.Name, err = scanText(p.s, p.req.Body)
	case isText && string(key) == "uri":
		p.req.URI, err = scanText(p.s, p.req.Body)
	default:
		_, err = p.s.SkipStrict()
	}
	return err
}

func scanText(s *jsonscan.Scanner, body []byte) (string, error) {
	str, err := s.Str()
	if err != nil {
		return "", err
	}
	return string(jsonscan.AppendDecoded(nil, str.Of(body))), nil
}
