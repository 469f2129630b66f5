package upstream

import (
	"errors"

	"github.com/ctxgate/ctxgate/fault"
)

// errForgotten is a session that its server does not know any more: the call was not begun.
var errForgotten = errors.New("the server forgot the session")

func forgotten() error {
	return fault.Wrap(fault.Unavailable, "the server forgot the session", errForgotten)
}

func isForgotten(err error) bool { return errors.Is(err, errForgotten) }
