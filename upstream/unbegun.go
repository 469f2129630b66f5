package upstream

import (
	"errors"

	"github.com/ctxgate/ctxgate/fault"
)

// unbegun is the failure of a call that its server never had, or said that it did not begin: it may be
// made again.
type unbegun struct{ error }

func (u unbegun) Unwrap() error { return u.error }

func isUnbegun(err error) bool {
	_, is := errors.AsType[unbegun](err)
	return is
}

// forgotten is what a call gets whose session its server does not know any more.
func forgotten() error {
	return unbegun{fault.New(fault.Unavailable, "the server forgot the session")}
}
