// Package rpc reads and writes the JSON-RPC 2.0 envelope, strictly, as bytes. It says where
// the parts of a message are and leaves them where they are: what is forwarded is what came.
//
// Path through the files: request.go parses what a client sends, reply.go what a server
// answers, error.go builds the errors we answer ourselves, id.go compares ids.
//
// One parse decides policy and routing, so the parse refuses whatever another parser could read
// differently: a key twice (at any depth of a request; in the envelope of a reply), a protocol
// key in other letters, bytes that are not UTF-8, lone surrogates, anything after the message.
// The package has no I/O; it fails only by refusing, with a fault of kind Syntax (not JSON) or
// Invalid (JSON, but not this protocol).
package rpc

import (
	"errors"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// The keys that routing and policy read. Another spelling of any of them is refused.
var (
	envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsKeys   = []string{"name", "uri", "arguments", "_meta", "proxy", "cursor", "ref", "taskId", "requestState", "inputResponses"}
	errorKeys    = []string{"code", "message", "data"}
)

// envelope reads one message: an object, member by member, and nothing after it.
func envelope(s *jsonscan.Scanner, member func(key []byte) error) error {
	if s.Kind() != '{' {
		// JSON that is no object is told from what is no JSON.
		if _, err := s.Skip(); err != nil {
			return err
		}
		if err := s.End(); err != nil {
			return err
		}
		return invalid("the message must be one JSON object")
	}
	if err := s.Object(envelopeKeys, member); err != nil {
		return err
	}
	return s.End()
}

// refuse turns a scanner's error into a fault: a doubled or folded key is a well-formed
// document that we do not take, everything else is not JSON.
func refuse(err error) error {
	var e *jsonscan.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Reason {
	case jsonscan.DuplicateKey, jsonscan.FoldedKey, jsonscan.TooDeep, jsonscan.TooMany:
		return fault.Wrap(fault.Invalid, "invalid request: "+e.Error(), err)
	}
	return fault.Wrap(fault.Syntax, "not valid JSON: "+e.Error(), err)
}

func invalid(text string) error { return fault.New(fault.Invalid, "invalid request: "+text) }

// isVersion says whether the value at the cursor is the string "2.0", however escaped.
func isVersion(s *jsonscan.Scanner, body []byte) (bool, error) {
	if s.Kind() != '"' {
		_, err := s.Skip()
		return false, err
	}
	str, err := s.Str()
	return err == nil && str.Chars == 3 && string(jsonscan.AppendText(nil, str.Of(body))) == "2.0", err
}
