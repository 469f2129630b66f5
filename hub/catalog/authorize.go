package catalog

import (
	"bytes"
	"errors"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
)

// AuthorizeTool is the name of the tool that stands in for the lists of a server which its caller has not authorized yet.
const AuthorizeTool = "authorize"

// authorizeMark is in that tool alone.
const authorizeMark = `"_meta":{"ctxgate/authorize":true}`

// offerAuthorize lists that tool, if a server's lists could not be read for lack of the caller's authorization; the lock is held.
// Without it the caller would never see the server, and would have nothing to call.
func (c *Cache) offerAuthorize(class *Class, o *cachedOffer, err error) {
	missing, ok := errors.AsType[*oauth.NotAuthorizedError](err)
	if !ok || missing.Address == "" || c.classes[class.name] != class || class.offers[o.remote.ID()] != o {
		return
	}
	id := o.remote.ID()
	raw := append([]byte(`{"name":"`+AuthorizeTool+`","title":`), mcp.Quote("Authorize "+id)...)
	raw = append(append(raw, `,"description":`...), mcp.Quote("The tools of server "+id+" can be used after the user has authorized it. Call this tool to get the address that the user has to open in a browser.")...)
	raw = append(raw, `,"inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true,"openWorldHint":false},`+authorizeMark+`}`...)
	o.offer.memory.Release()
	o.offer = serverOffer{}
	o.offer.items[Tools] = []Item{{Name: AuthorizeTool, Raw: raw}}
	c.markStale(class, id)
}

// IsAuthorize reports whether an entry is that tool, and not one of its server.
func (e Entry) IsAuthorize() bool {
	return e.Name == AuthorizeTool && bytes.Contains(e.Raw, []byte(authorizeMark))
}
