package hub

import "github.com/ctxgate/ctxgate/jsonscan"

// proxyToken is the token in a message's params.proxy (A8), and whether there is one.
func proxyToken(raw []byte) (string, bool) {
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return "", true // something is there, and it is no token
	}
	token, ok := fields.Get("authToken")
	return jsonscan.TextOf(token), ok
}
