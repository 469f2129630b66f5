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
	Result  jsonscan.Span // the result's JSON; empty in an error
	Error   jsonscan.Span // the error object's JSON; empty in a result
	IsError bool
	Strings []jsonscan.Str
}

// ParseReply reads one reply in one pass and finds its strings of more than chars code points.
// A negative chars finds them all.
func ParseReply(body []byte, depth, chars int) (Reply, error) {
	m, err := ParseMessage(body, depth, chars)
	if err == nil && m.Method != "" {
		err = badReply(invalid("a request where a reply was expected"))
	}
	return m.Reply, err
}

func badReply(err error) error {
	return fault.Wrap(fault.BadReply, "the server's answer is not a JSON-RPC reply", err)
}

// MessageID is the reply's id.
func (r *Reply) MessageID() ID {
	if r.ID.Len() == 0 {
		return ID{}
	}
	return ID{r.ID.Of(r.Body)}
}
